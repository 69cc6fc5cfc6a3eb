"""Cells that exist, made ready once for being asked about many sets of them."""

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any

from runner.patterns.cover import cover, without_needless
from runner.patterns.problem import Bits, Box, Cell, Problem

MERGED = 40
"""Boxes among which `Split.roughly` looks for pairs."""
STRAYS = 0.1
"""Counterexamples that such a box may hold for each cell of the set."""


class Grid:
    """All cells that exist, each once, as columns of positions; positions of an axis count from 0 to its size."""

    def __init__(self, cells: Sequence[Cell], sizes: Sequence[int]) -> None:
        import numpy as np

        self._sizes = sizes
        self._index = {cell: number for number, cell in enumerate(cells)}
        self._columns = np.array(list(self._index), dtype=np.int64).reshape(len(self._index), len(sizes)).T

    def split(self, inside: Sequence[Cell]) -> "Split":
        """The question which boxes hold these cells, with values put together that behave alike.

        Two values of an axis behave alike where swapping one for the other in any cell changes nothing: a box that has
        one of them may as well have both, so that no cover needs more boxes than before.
        """
        import numpy as np

        colour = np.zeros(len(self._index), dtype=np.int64)
        colour[[self._index[cell] for cell in inside]] = 1
        classes = [self._alike(axis, colour) for axis in range(len(self._sizes))]
        code = np.zeros(len(self._index), dtype=np.int64)
        columns = []
        for column, groups in zip(self._columns, classes, strict=True):
            new_of = np.zeros(sum(map(len, groups)), dtype=np.int64)
            for number, group in enumerate(groups):
                new_of[list(group)] = number
            columns.append(new_of[column])
            code = _numbered_anew(code * len(groups) + columns[-1])
        kept = np.sort(np.unique(code, return_index=True)[1])
        cells = list(zip(*(column[kept].tolist() for column in columns), strict=True)) or [()] * len(kept)
        sides: tuple[list[Cell], list[Cell]] = [], []
        for cell, red in zip(cells, colour[kept].tolist(), strict=True):
            sides[not red].append(cell)
        return Split(Problem(*sides, [len(groups) for groups in classes]), classes)

    def _alike(self, axis: int, colour: Any) -> list[tuple[int, ...]]:
        """The values of an axis, those together that have the same cells of the same side."""
        order, rest, starts = self._sorted[axis]
        word = rest + colour[order]
        together: dict[bytes, list[int]] = {}
        for one in range(self._sizes[axis]):
            together.setdefault(word[starts[one] : starts[one + 1]].tobytes(), []).append(one)
        return [tuple(group) for group in together.values()]

    @cached_property
    def _sorted(self) -> list[tuple[Any, Any, Any]]:
        """For each axis: the cells by their value on it, twice the number of what they are on all others, and where in
        that order each value starts."""
        import numpy as np

        found = []
        for axis, size in enumerate(self._sizes):
            rest = np.zeros(len(self._index), dtype=np.int64)
            for other, width in enumerate(self._sizes):
                if other != axis and width > 1:
                    rest = _numbered_anew(rest * width + self._columns[other])
            order = np.lexsort((rest, self._columns[axis]))
            starts = np.searchsorted(self._columns[axis][order], np.arange(size + 1)).tolist()
            found.append((order, rest[order] * 2, starts))
        return found


def _numbered_anew(code: Any) -> Any:
    """The same numbers as 0, 1, 2 in their order: multiplied on and on they would overflow."""
    import numpy as np

    return np.unique(code, return_inverse=True)[1].reshape(-1)


class Split:
    """A set of cells against all others, in values that behave alike: `classes` says what each stands for."""

    def __init__(self, problem: Problem, classes: Sequence[Sequence[tuple[int, ...]]]) -> None:
        self._problem, self._classes = problem, classes
        self._inside, self._outside = (self._weights(side) for side in (problem.inside, problem.outside))

    def fewest(self) -> list[Box]:
        """Boxes that hold every cell of the set, each at least once, and no other; the largest first."""
        return self._described(cover(self._problem)) if self._problem.inside else []

    def roughly(self, boxes: Sequence[Box]) -> list[Box]:
        """Fewer boxes than these, which hold a few other cells too: at most a tenth of those of the set.

        Two boxes are joined as long as there is such a pair, the one with the fewest counterexamples first.
        """
        found = [self._packed(box) for box in boxes]
        few, rest = found[:MERGED], found[MERGED:]
        while pairs := {one | other for one, other in combinations(few, 2)}:
            strays, _, joined = min((self._strays(box) / self._held(box), -box, box) for box in pairs)
            if strays > STRAYS:
                break
            few = [joined, *(box for box in few if box & ~joined)]
        rough = self._described(without_needless(self._problem, [*few, *rest]))
        return [
            Box(box.widest, box.widest, box.inside, box.outside) for box in rough
        ]  # what is counted is what is said

    def _described(self, boxes: Sequence[Bits]) -> list[Box]:
        """The boxes in the values of the grid, the largest first, and among equals in the order of the values."""
        left, found = (1 << len(self._problem.inside)) - 1, []
        for box in sorted(boxes, key=lambda box: (-self._held(box), self._problem.unpack(box))):
            held = self._problem.held(box)
            used = self._problem.used(box, held & left or held)
            left &= ~held
            widest = self._problem.unpack(box)
            found.append(Box(self._opened(widest), self._opened(used), self._held(box), self._strays(box)))
        return found

    def _opened(self, values: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(sorted(one for number in taken for one in groups[number]))
            for taken, groups in zip(values, self._classes, strict=True)
        )

    def _packed(self, box: Box) -> Bits:
        return self._problem.pack(
            [number for number, group in enumerate(groups) if group[0] in taken]
            for taken, groups in zip(box.used, self._classes, strict=True)
        )

    def _weights(self, cells: Sequence[Cell]) -> dict[int, Bits]:
        """Of how many cells of the grid each of these stands, as the set of those that stand for so many."""
        found: dict[int, Bits] = {}
        for number, cell in enumerate(cells):
            weight = prod(len(groups[one]) for one, groups in zip(cell, self._classes, strict=True))
            found[weight] = found.get(weight, 0) | 1 << number
        return found

    def _held(self, box: Bits) -> int:
        cells = self._problem.held(box)
        return sum(weight * (cells & those).bit_count() for weight, those in self._inside.items())

    def _strays(self, box: Bits) -> int:
        cells = self._problem.strays(box)
        return sum(weight * (cells & those).bit_count() for weight, those in self._outside.items())
