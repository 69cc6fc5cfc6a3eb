"""The fewest products of axis values that hold all cells of a set and no other cell that exists. Pure.

This is the minimization of a function of many-valued variables: maximal boxes (prime implicants) are found first, then
the fewest of them that cover the set are chosen, by integer programming where the problem is small and greedily where
it is not. Combinations that do not exist belong to neither side, and a box may hold them: it is shorter to say then.

A cell is a tuple of positions, one per axis: position p stands for the p-th value of that axis.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from runner.patterns.cover import cover, without_needless
from runner.patterns.problem import Bits, Box, Cell, Problem

__all__ = ["Box", "Cell", "fewest", "roughly"]

MERGED = 40
"""Boxes among which `roughly` looks for pairs."""
STRAYS = 0.1
"""Counterexamples that such a box may hold for each cell of the set."""


def fewest(inside: Iterable[Cell], outside: Iterable[Cell], sizes: Sequence[int]) -> list[Box]:
    """Boxes that hold every cell of `inside`, each at least once, and none of `outside`; the largest first."""
    problem = Problem(tuple(dict.fromkeys(inside)), tuple(dict.fromkeys(outside)), sizes)
    if not problem.inside:
        return []
    small, classes = _merged(problem)
    return problem.described(_widened(box, classes, problem.offsets, small.offsets) for box in cover(small))


def roughly(boxes: Sequence[Box], inside: Iterable[Cell], outside: Iterable[Cell], sizes: Sequence[int]) -> list[Box]:
    """Fewer boxes than these, which hold a few cells of `outside` too: at most a tenth of those of `inside`.

    Two boxes are joined as long as there is such a pair, the one with the fewest counterexamples first.
    """
    problem = Problem(tuple(dict.fromkeys(inside)), tuple(dict.fromkeys(outside)), sizes)
    found = [problem.pack(box.used) for box in boxes]
    few, rest = found[:MERGED], found[MERGED:]
    while pairs := {one | other for one, other in combinations(few, 2)}:
        strays, _, joined = min((problem.strays(box) / problem.held(box).bit_count(), -box, box) for box in pairs)
        if strays > STRAYS:
            break
        few = [joined, *(box for box in few if box & ~joined)]
    rough = problem.described(without_needless(problem, [*few, *rest]))
    return [replace(box, used=box.widest) for box in rough]  # what is counted is what is said


def _merged(problem: Problem) -> tuple[Problem, list[list[list[int]]]]:
    """The same problem with values put together that behave alike, and for each axis what its new values stand for.

    Two values behave alike where swapping one for the other in any cell changes nothing: a box that has one of them may
    as well have both, so that no cover needs more boxes than before.
    """
    import numpy as np

    cells = np.array([*problem.inside, *problem.outside], dtype=np.int64)
    colour = np.arange(len(cells)) < len(problem.inside)
    classes: list[list[list[int]]] = []
    new_of: list[dict[int, int]] = []
    for axis, size in enumerate(problem.sizes):
        rest = np.zeros(len(cells), dtype=np.int64)
        for other, width in enumerate(problem.sizes):
            if other != axis and width > 1:
                # numbered anew at each axis, or the numbers would overflow
                rest = np.unique(rest * width + cells[:, other], return_inverse=True)[1].reshape(-1)
        order = np.lexsort((rest, cells[:, axis]))
        word = (rest * 2 + colour)[order]
        starts = np.searchsorted(cells[order, axis], np.arange(size + 1))
        alike: dict[bytes, list[int]] = {}
        for one in range(size):
            alike.setdefault(word[starts[one] : starts[one + 1]].tobytes(), []).append(one)
        classes.append(list(alike.values()))
        new_of.append({one: number for number, group in enumerate(alike.values()) for one in group})
    sides = [
        tuple(dict.fromkeys(tuple(new_of[axis][one] for axis, one in enumerate(cell)) for cell in side))
        for side in (problem.inside, problem.outside)
    ]
    return Problem(sides[0], sides[1], [len(groups) for groups in classes]), classes


def _widened(box: Bits, classes: list[list[list[int]]], offsets: Sequence[int], small: Sequence[int]) -> Bits:
    """A box of the merged problem in the values of the problem before."""
    return sum(
        1 << offsets[axis] + one
        for axis, groups in enumerate(classes)
        for number, group in enumerate(groups)
        if box >> small[axis] + number & 1
        for one in group
    )
