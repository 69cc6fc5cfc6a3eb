"""The fewest products of axis values that hold all cells of a set and no other cell that exists. Pure.

This is the minimization of a function of many-valued variables: maximal boxes (prime implicants) are found first, then
the fewest of them that cover the set are chosen, by integer programming where the problem is small and greedily where
it is not. Combinations that do not exist belong to neither side, and a box may hold them: it is shorter to say then.

A cell is a tuple of positions, one per axis: position p stands for the p-th value of that axis.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from operator import and_, or_

Cell = tuple[int, ...]
Bits = int
"""A set of positions, or of cells, one bit each."""
Masks = Sequence[Sequence[Bits]]
"""For each axis and position, the cells that have it."""

COMPARED = 20_000
"""Pairs of boxes compared before the search for all maximal boxes is given up: tenths of a second."""
ENTRIES = 10_000
"""Of the integer program, boxes times cells: where it would have more, boxes are taken greedily."""
NODES = 50
"""Of the tree that the integer program may search: a count, not a time, so that the same cells give the same boxes."""
MERGED = 40
"""Boxes among which `roughly` looks for pairs."""
STRAYS = 0.1
"""Counterexamples that such a box may hold for each cell of the set."""


@dataclass(frozen=True, slots=True)
class Box:
    """Every combination of these positions."""

    widest: tuple[tuple[int, ...], ...]
    """For each axis, the positions that it may have without holding a cell of the other side."""
    used: tuple[tuple[int, ...], ...]
    """Those of them that a cell has which no larger box of the same answer holds: with any choice between the two, the
    boxes together hold the same cells."""
    inside: int
    """How many cells of the set it holds."""
    outside: int = 0
    """How many of the others: counterexamples, 0 for an exact one."""


def fewest(inside: Iterable[Cell], outside: Iterable[Cell], sizes: Sequence[int]) -> list[Box]:
    """Boxes that hold every cell of `inside`, each at least once, and none of `outside`; the largest first."""
    problem = _Problem(tuple(dict.fromkeys(inside)), tuple(dict.fromkeys(outside)), sizes)
    if not problem.inside:
        return []
    small, classes = _merged(problem)
    return problem.described(_widened(box, classes, problem.offsets, small.offsets) for box in _cover(small))


def roughly(boxes: Sequence[Box], inside: Iterable[Cell], outside: Iterable[Cell], sizes: Sequence[int]) -> list[Box]:
    """Fewer boxes than these, which hold a few cells of `outside` too: at most a tenth of those of `inside`.

    Two boxes are joined as long as there is such a pair, the one with the fewest counterexamples first.
    """
    problem = _Problem(tuple(dict.fromkeys(inside)), tuple(dict.fromkeys(outside)), sizes)
    found = [problem.pack(box.used) for box in boxes]
    few, rest = found[:MERGED], found[MERGED:]
    while pairs := {one | other for one, other in combinations(few, 2)}:
        strays, _, joined = min((problem.strays(box) / problem.held(box).bit_count(), -box, box) for box in pairs)
        if strays > STRAYS:
            break
        few = [joined, *(box for box in few if box & ~joined)]
    return problem.described(_without_needless(problem, [*few, *rest]))


class _Problem:
    """The two sides as bits: a box is one number with a field of bits for each axis, so that `a & ~b` compares two."""

    def __init__(self, inside: Sequence[Cell], outside: Sequence[Cell], sizes: Sequence[int]) -> None:
        self.inside, self.outside, self.sizes = inside, outside, sizes
        self.offsets = [sum(sizes[:axis]) for axis in range(len(sizes))]
        self.fields = [((1 << size) - 1) << offset for size, offset in zip(sizes, self.offsets, strict=True)]
        self._in, self._out = _masks(inside, sizes), _masks(outside, sizes)

    def pack(self, values: Iterable[Iterable[int]]) -> Bits:
        return sum(1 << offset + one for offset, taken in zip(self.offsets, values, strict=True) for one in taken)

    def unpack(self, box: Bits) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(one for one in range(size) if box >> offset + one & 1)
            for size, offset in zip(self.sizes, self.offsets, strict=True)
        )

    def held(self, box: Bits) -> Bits:
        """The cells of the set that the box holds."""
        return self._cells(box, self._in)

    def strays(self, box: Bits) -> int:
        """How many of the others it holds."""
        return self._cells(box, self._out).bit_count()

    def _cells(self, box: Bits, masks: Masks) -> Bits:
        held = _everything(masks)
        for part, axis, taken in zip(self.fields, masks, self.unpack(box), strict=True):
            if part & ~box:
                held &= reduce(or_, (axis[one] for one in taken), 0)
        return held

    def grown(self, box: Bits, order: Iterable[int]) -> Bits:
        """The box with every position added, axis by axis, that brings in no cell of the other side."""
        masks, everything = self._out, _everything(self._out)
        layers = [reduce(or_, (masks[axis][one] for one in taken), 0) for axis, taken in enumerate(self.unpack(box))]
        for axis in order:
            line = reduce(and_, layers[:axis] + layers[axis + 1 :], everything)
            for one in range(self.sizes[axis]):
                if not line & masks[axis][one]:
                    box |= 1 << self.offsets[axis] + one
                    layers[axis] |= masks[axis][one]
        return box

    def described(self, boxes: Iterable[Bits]) -> list[Box]:
        """The boxes in the open, the largest first, and among equals in the order of the values."""
        left, found = (1 << len(self.inside)) - 1, []
        for box in sorted(boxes, key=lambda box: (-self.held(box).bit_count(), self.unpack(box))):
            held, values = self.held(box), self.unpack(box)
            needed = held & left or held
            used = tuple(
                tuple(one for one in taken if needed & self._in[axis][one]) for axis, taken in enumerate(values)
            )
            left &= ~held
            found.append(Box(values, used, held.bit_count(), self.strays(box)))
        return found


def _masks(cells: Sequence[Cell], sizes: Sequence[int]) -> list[list[Bits]]:
    found = [[bytearray(len(cells) // 8 + 1) for _ in range(size)] for size in sizes]
    for number, cell in enumerate(cells):
        byte, bit = number >> 3, 1 << (number & 7)
        for axis, one in enumerate(cell):
            found[axis][one][byte] |= bit
    return [[int.from_bytes(one, "little") for one in axis] for axis in found]


def _everything(masks: Masks) -> Bits:
    return reduce(or_, masks[0], 0) if masks else 1


def _merged(problem: _Problem) -> tuple[_Problem, list[list[list[int]]]]:
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
    return _Problem(sides[0], sides[1], [len(groups) for groups in classes]), classes


def _widened(box: Bits, classes: list[list[list[int]]], offsets: Sequence[int], small: Sequence[int]) -> Bits:
    """A box of the merged problem in the values of the problem before."""
    return sum(
        1 << offsets[axis] + one
        for axis, groups in enumerate(classes)
        for number, group in enumerate(groups)
        if box >> small[axis] + number & 1
        for one in group
    )


def _cover(problem: _Problem) -> list[Bits]:
    found = _maximal(problem)
    if found is None:
        chosen, found = _by_seeds(problem)
    else:
        chosen = _greedy(problem, found)
        if len(chosen) <= _at_least(problem, found):
            return chosen  # without the import of a solver, which takes longer than the search
    return _by_program(problem, found, chosen)


def _at_least(problem: _Problem, boxes: Sequence[Bits]) -> int:
    """How many boxes any cover has: as many as there are cells of which no two are in one box."""
    held = [problem.held(box) for box in boxes]
    found, left = 0, (1 << len(problem.inside)) - 1
    while left:
        # the cell that shares its boxes with the fewest others would be best; the lowest is near enough
        lowest = left & -left
        left &= ~reduce(or_, (cells for cells in held if cells & lowest), 0)
        found += 1
    return found


def _maximal(problem: _Problem) -> list[Bits] | None:
    """All maximal boxes that hold a cell of the set; None where there are too many to look for.

    From the box of everything, each box of the other side is cut away in turn: what remains of a box are as many boxes
    as there are axes, each without the other's positions on one axis. Those held by another one are dropped.
    """
    boxes, compared = [reduce(or_, problem.fields, 0)], 0
    for away in _disjoint(problem):
        hit = [box for box in boxes if all(box & away & part for part in problem.fields)]
        kept = [box for box in boxes if not all(box & away & part for part in problem.fields)]
        pieces = {box & ~(away & part) for box in hit for part in problem.fields}
        pieces = {box for box in pieces if all(box & part for part in problem.fields) and problem.held(box)}
        compared += len(pieces) * (len(kept) + len(pieces))
        if compared > COMPARED:
            return None
        for box in sorted(pieces, key=lambda one: (-one.bit_count(), one)):
            if not any(box & ~other == 0 for other in kept):
                kept.append(box)
        boxes = kept
    return boxes


def _disjoint(problem: _Problem) -> list[Bits]:
    """Boxes that hold the other side and nothing else, not even what does not exist; few, but not the fewest."""
    boxes = [problem.pack([one] for one in cell) for cell in problem.outside]
    for part in problem.fields:
        together: dict[Bits, Bits] = {}
        for box in boxes:
            together[box & ~part] = together.get(box & ~part, 0) | box
        boxes = list(together.values())
    return sorted(boxes, key=lambda box: (-box.bit_count(), box))


def _by_seeds(problem: _Problem) -> tuple[list[Bits], list[Bits]]:
    """A cover grown from cells that no box holds yet, and all boxes that were grown on the way."""
    left, axes = (1 << len(problem.inside)) - 1, list(range(len(problem.sizes)))
    chosen: list[Bits] = []
    seen: dict[Bits, Bits] = {}
    while left:
        cell = problem.inside[(left & -left).bit_length() - 1]
        point = problem.pack([one] for one in cell)
        grown = [problem.grown(point, axes[start:] + axes[:start]) for start in axes]
        seen |= {box: problem.held(box) for box in grown}
        gains = [(seen[box] & left).bit_count() for box in grown]
        best = grown[gains.index(max(gains))]
        chosen.append(best)
        left &= ~seen[best]
    return _without_needless(problem, chosen), list(seen)


def _greedy(problem: _Problem, boxes: Sequence[Bits]) -> list[Bits]:
    """Always the box that holds most of what is left."""
    held = {box: problem.held(box) for box in boxes}
    left, chosen = reduce(or_, held.values(), 0), []
    while left:
        best = max(boxes, key=lambda box: ((held[box] & left).bit_count(), box.bit_count(), box))
        chosen.append(best)
        left &= ~held[best]
    return _without_needless(problem, chosen)


def _without_needless(problem: _Problem, chosen: Sequence[Bits]) -> list[Bits]:
    """The cover without boxes whose cells the others hold, the smallest looked at first."""
    held = {box: problem.held(box) for box in chosen}
    for box in sorted(held, key=lambda box: (held[box].bit_count(), box)):
        others = reduce(or_, (cells for other, cells in held.items() if other != box), 0)
        if not held[box] & ~others:
            del held[box]
    return list(held)


def _by_program(problem: _Problem, candidates: Sequence[Bits], chosen: list[Bits]) -> list[Bits]:
    """The fewest candidates that cover all, among them those with the fewest words; `chosen` where it is too much.

    Boxes that alone hold some cell are in every cover; only what they leave is a question.
    """
    held = {box: problem.held(box) for box in candidates}
    once = many = 0
    for cells in held.values():
        many |= once & cells
        once |= cells
    needed = [box for box, cells in held.items() if cells & ~many]
    left = once & ~reduce(or_, (held[box] for box in needed), 0)
    open_ = [box for box, cells in held.items() if cells & left]
    if not left:
        return needed
    if len(open_) * left.bit_count() > ENTRIES:
        return chosen
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    rows = [number for number in range(len(problem.inside)) if left >> number & 1]
    table = np.unique(np.array([[held[box] >> row & 1 for box in open_] for row in rows], dtype=float), axis=0)
    words = np.array([sum(part & ~box != 0 for part in problem.fields) for box in open_])
    found = milp(
        1
        + words / (1 + len(problem.sizes)) / (1 + len(chosen)) / 2,  # words of all boxes together weigh less than a box
        integrality=np.ones(len(open_)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(table, lb=1),
        options={"node_limit": NODES},
    )
    if found.x is None:
        return chosen
    picked = needed + [box for box, taken in zip(open_, found.x, strict=True) if taken > 0.5]
    whole = not once & ~reduce(or_, (held[box] for box in picked), 0)
    return picked if whole and len(picked) <= len(chosen) else chosen
