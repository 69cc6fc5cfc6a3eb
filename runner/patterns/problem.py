"""Cells and boxes as bits: what finds patterns, and what says which cells a pattern holds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

Cell = tuple[int, ...]
Bits = int
"""A set of positions, or of cells, one bit each."""
Masks = Sequence[Sequence[Bits]]
"""For each axis and position, the cells that have it."""


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


class Problem:
    """The two sides as bits: a box is one number with a field of bits for each axis, so that `a & ~b` compares two."""

    def __init__(self, inside: Sequence[Cell], outside: Sequence[Cell], sizes: Sequence[int]) -> None:
        self.inside, self.outside, self.sizes = inside, outside, sizes
        self.offsets = [sum(sizes[:axis]) for axis in range(len(sizes))]
        self.fields = [((1 << size) - 1) << offset for size, offset in zip(sizes, self.offsets, strict=True)]
        self._bits = [[1 << offset + one for one in range(n)] for n, offset in zip(sizes, self.offsets, strict=True)]
        self._in, self._out = _masks(inside, sizes), _masks(outside, sizes)

    def pack(self, values: Iterable[Iterable[int]]) -> Bits:
        return sum(bits[one] for bits, taken in zip(self._bits, values, strict=True) for one in taken)

    def point(self, cell: Cell) -> Bits:
        """The box of one cell."""
        return sum([bits[one] for bits, one in zip(self._bits, cell, strict=True)])

    def unpack(self, box: Bits) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(one for one in range(size) if box >> offset + one & 1)
            for size, offset in zip(self.sizes, self.offsets, strict=True)
        )

    def held(self, box: Bits) -> Bits:
        """The cells of the set that the box holds."""
        return self._cells(box, self._in)

    def strays(self, box: Bits) -> Bits:
        """The others that it holds."""
        return self._cells(box, self._out)

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

    def used(self, box: Bits, cells: Bits) -> tuple[tuple[int, ...], ...]:
        """The positions of the box that these cells of the set have."""
        return tuple(
            tuple(one for one in taken if cells & self._in[axis][one]) for axis, taken in enumerate(self.unpack(box))
        )


def _masks(cells: Sequence[Cell], sizes: Sequence[int]) -> list[list[Bits]]:
    found = [[bytearray(len(cells) // 8 + 1) for _ in range(size)] for size in sizes]
    for number, cell in enumerate(cells):
        byte, bit = number >> 3, 1 << (number & 7)
        for axis, one in enumerate(cell):
            found[axis][one][byte] |= bit
    return [[int.from_bytes(one, "little") for one in axis] for axis in found]


def _everything(masks: Masks) -> Bits:
    return reduce(or_, masks[0], 0) if masks else 1
