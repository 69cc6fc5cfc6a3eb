"""Few maximal boxes that cover a set: the fewest where the problem is small, near it where it is large."""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from runner.patterns.problem import Bits, Problem

COMPARED = 20_000
"""Pairs of boxes compared before the search for all maximal boxes is given up: tenths of a second."""
ENTRIES = 10_000
"""Of the integer program, boxes times cells: where it would have more, boxes are taken greedily."""
NODES = 50
"""Of the tree that the integer program may search: a count, not a time, so that the same cells give the same boxes."""


def cover(problem: Problem) -> list[Bits]:
    found = _maximal(problem)
    if found is None:
        chosen, found = _by_seeds(problem)
    else:
        chosen = _greedy(problem, found)
        if len(chosen) <= _at_least(problem, found):
            return chosen  # without the import of a solver, which takes longer than the search
    return _by_program(problem, found, chosen)


def _at_least(problem: Problem, boxes: Sequence[Bits]) -> int:
    """How many boxes any cover has: as many as there are cells of which no two are in one box."""
    held = [problem.held(box) for box in boxes]
    found, left = 0, (1 << len(problem.inside)) - 1
    while left:
        # the cell that shares its boxes with the fewest others would be best; the lowest is near enough
        lowest = left & -left
        left &= ~reduce(or_, (cells for cells in held if cells & lowest), 0)
        found += 1
    return found


def _maximal(problem: Problem) -> list[Bits] | None:
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


def _disjoint(problem: Problem) -> list[Bits]:
    """Boxes that hold the other side and nothing else, not even what does not exist; few, but not the fewest."""
    boxes = [problem.point(cell) for cell in problem.outside]
    for part in problem.fields:
        together: dict[Bits, Bits] = {}
        for box in boxes:
            together[box & ~part] = together.get(box & ~part, 0) | box
        boxes = list(together.values())
    return sorted(boxes, key=lambda box: (-box.bit_count(), box))


def _by_seeds(problem: Problem) -> tuple[list[Bits], list[Bits]]:
    """A cover grown from cells that no box holds yet, and all boxes that were grown on the way."""
    left, axes = (1 << len(problem.inside)) - 1, list(range(len(problem.sizes)))
    chosen: list[Bits] = []
    seen: dict[Bits, Bits] = {}
    while left:
        cell = problem.inside[(left & -left).bit_length() - 1]
        point = problem.point(cell)
        grown = [problem.grown(point, axes[start:] + axes[:start]) for start in axes]
        seen |= {box: problem.held(box) for box in grown}
        gains = [(seen[box] & left).bit_count() for box in grown]
        best = grown[gains.index(max(gains))]
        chosen.append(best)
        left &= ~seen[best]
    return without_needless(problem, chosen), list(seen)


def _greedy(problem: Problem, boxes: Sequence[Bits]) -> list[Bits]:
    """Always the box that holds most of what is left."""
    held = {box: problem.held(box) for box in boxes}
    left, chosen = reduce(or_, held.values(), 0), []
    while left:
        best = max(boxes, key=lambda box: ((held[box] & left).bit_count(), box.bit_count(), box))
        chosen.append(best)
        left &= ~held[best]
    return without_needless(problem, chosen)


def without_needless(problem: Problem, chosen: Sequence[Bits]) -> list[Bits]:
    """The cover without boxes whose cells the others hold, the smallest looked at first."""
    held = {box: problem.held(box) for box in chosen}
    for box in sorted(held, key=lambda box: (held[box].bit_count(), box)):
        others = reduce(or_, (cells for other, cells in held.items() if other != box), 0)
        if not held[box] & ~others:
            del held[box]
    return list(held)


def _by_program(problem: Problem, candidates: Sequence[Bits], chosen: list[Bits]) -> list[Bits]:
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
