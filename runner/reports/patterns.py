"""Says a set of cells as few products of axis values: `flashinfer sm80,sm89 hybrid on,off k0-7 c64 solo`."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from runner.model import AxisValue, CellResult
from runner.reports.text import one_line

Box = tuple[tuple[AxisValue, ...], ...]
"""For each axis, the values it takes, in the axis's order; the box is every combination of them."""

Domain = Mapping[str, tuple[AxisValue, ...]]

PREFIX = {"hybrid": "hybrid ", "spec_k": "k", "chunk": "c"}
"""How an axis shows in a pattern, where the bare value would not say which axis it is."""

BARE = frozenset({"vllm", "backend", "arch", "load"})


def domain(results: Sequence[CellResult]) -> dict[str, tuple[AxisValue, ...]]:
    """Every axis with the values that occur, both in the order in which they first occur."""
    found: dict[str, dict[AxisValue, None]] = {}
    for result in results:
        for axis, value in result.axes.items():
            found.setdefault(axis, {})[value] = None
    return {axis: tuple(values) for axis, values in found.items()}


def boxes(results: Sequence[CellResult], axes: Domain) -> list[Box]:
    """Few disjoint boxes that hold exactly these cells: nothing is claimed that was not seen.

    Finding the fewest is hard; merging along one axis after the other, from each starting axis, is near enough.
    """
    cells: list[Box] = [tuple((result.axes[axis],) for axis in axes) for result in results]
    order = list(range(len(axes)))
    tries = [_merge(cells, order[start:] + order[:start], list(axes.values())) for start in order] or [[()]]
    return min(tries, key=len)


def _merge(found: list[Box], order: list[int], values: list[tuple[AxisValue, ...]]) -> list[Box]:
    for axis in order:
        together: dict[Box, set[AxisValue]] = defaultdict(set)
        for box in found:
            together[(*box[:axis], (), *box[axis + 1 :])].update(box[axis])
        found = [
            (*rest[:axis], tuple(value for value in values[axis] if value in taken), *rest[axis + 1 :])
            for rest, taken in together.items()
        ]
    return found


def say(box: Box, axes: Domain) -> str:
    """One box in words. An axis with one value in the whole run says nothing and is left out, but never all of them."""
    telling = [(axis, taken) for (axis, values), taken in zip(axes.items(), box, strict=True) if len(values) > 1]
    return " ".join(_axis(axis, taken, axes[axis]) for axis, taken in telling) or "every cell of the run"


def _axis(axis: str, taken: tuple[AxisValue, ...], values: tuple[AxisValue, ...]) -> str:
    prefix = PREFIX.get(axis, "" if axis in BARE else f"{axis}=")
    if len(taken) > 2 and axis == "spec_k" and _neighbours(taken, values):
        return f"{prefix}{taken[0]}-{taken[-1]}"
    joint = f",{prefix}" if axis == "chunk" else ","
    return one_line(prefix + joint.join(str(value) for value in taken), 200)


def _neighbours(taken: tuple[AxisValue, ...], values: tuple[AxisValue, ...]) -> bool:
    start = values.index(taken[0])
    return values[start : start + len(taken)] == taken


def compact(results: Sequence[CellResult], axes: Domain, *, limit: int) -> list[str]:
    """The patterns of these cells, at most `limit` of them, with a note of how many cells the rest holds."""
    found = sorted(boxes(results, axes), key=lambda box: -_size(box))
    lines = [say(box, axes) for box in found[:limit]]
    left_out = sum(_size(box) for box in found[limit:])
    return [*lines, f"… and {left_out:,} more"] if left_out else lines


def _size(box: Box) -> int:
    size = 1
    for taken in box:
        size *= len(taken)
    return size
