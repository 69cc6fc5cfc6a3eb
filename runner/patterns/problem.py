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
