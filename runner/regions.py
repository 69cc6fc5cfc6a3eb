"""Sets of cells too large to list: products of axis values, and what is left of one when others are taken out. Pure."""

import math
from collections.abc import Iterable, Iterator, Sequence

from runner.axes import AxisValues
from runner.conditions import Selector, restricted

MAX_PIECES = 20_000
"""Into how many pieces rules may cut a region before nobody counts them any more."""


def less(region: AxisValues, selector: Selector) -> Iterator[AxisValues]:
    """Disjoint regions that hold the cells of this one which the selector does not match."""
    for axis, condition in selector.conditions.items():
        outside = tuple(value for value in region[axis] if not condition.holds(value))
        if outside:
            yield {**region, axis: outside}
        region = {**region, axis: tuple(value for value in region[axis] if condition.holds(value))}
        if not region[axis]:
            return


def left(region: AxisValues, taken: Sequence[Selector]) -> Iterator[AxisValues]:
    """Disjoint regions that hold the cells of this one which none of the selectors matches; lazy, so that to ask for
    the first costs little."""
    if not all(region.values()):
        return
    waiting = [(region, 0)]
    while waiting:
        piece, number = waiting.pop()
        if number == len(taken):
            yield piece
        else:
            waiting += [(smaller, number + 1) for smaller in less(piece, taken[number])]


def of(selector: Selector, axes: AxisValues) -> AxisValues:
    """The cells that a selector matches."""
    return restricted(axes, selector.conditions)


def size(regions: Iterable[AxisValues]) -> int | None:
    """How many cells disjoint regions hold; None where they are more than MAX_PIECES."""
    cells = 0
    for number, region in enumerate(regions):
        if number == MAX_PIECES:
            return None
        cells += math.prod(map(len, region.values()))
    return cells
