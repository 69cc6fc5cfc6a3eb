"""Says a set of cells in the fewest patterns: `flashinfer sm90,sm120 k>=3`. An axis that is not said has any value."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

from runner import patterns
from runner.model import AxisValue, CellResult, State, Verdict
from runner.patterns import Box
from runner.reports.text import count, one_line

PREFIX = {"hybrid": "hybrid ", "spec_k": "k", "chunk": "c"}
"""How an axis shows in a pattern, where the bare value would not say which axis it is."""

BARE = frozenset({"vllm", "backend", "arch", "load"})
EVERYTHING = "every cell of the run"


class Placed(Protocol):
    """What has a value per axis: a result, or a change between two."""

    @property
    def axes(self) -> Mapping[str, AxisValue]: ...


class Domain(dict[str, tuple[AxisValue, ...]]):
    """Every axis with the values that occur, both in the order in which they first occur; and which cells exist.

    What a rule excludes does not exist: it may be in a pattern and is no part of it.
    """

    def __init__(self, every: Sequence[Placed], existing: Sequence[Placed]) -> None:
        names = dict.fromkeys(axis for one in every for axis in one.axes)
        # an axis that only a part of them has, as of two matrices, is empty for the others
        super().__init__({axis: tuple(dict.fromkeys(one.axes.get(axis, "") for one in every)) for axis in names})
        self._existing = existing

    @property
    def sizes(self) -> list[int]:
        return [len(values) for values in self.values()]

    @cached_property
    def _grid(self) -> patterns.Grid:
        return patterns.Grid([self.cell(one) for one in self._existing], self.sizes)

    @cached_property
    def _positions(self) -> list[tuple[str, dict[AxisValue, int]]]:
        return [(axis, {value: number for number, value in enumerate(values)}) for axis, values in self.items()]

    def cell(self, one: Placed) -> patterns.Cell:
        return tuple([position[one.axes.get(axis, "")] for axis, position in self._positions])

    def split(self, chosen: Sequence[Placed]) -> patterns.Split:
        """A set of the cells that exist, against all others."""
        return self._grid.split([self.cell(one) for one in chosen])


def domain(results: Sequence[CellResult]) -> Domain:
    excluded = (State.UNSUPPORTED, Verdict.UNSUPPORTED)
    return Domain(results, [result for result in results if (result.state, result.verdict) != excluded])


def boxes(results: Sequence[Placed], axes: Domain) -> list[Box]:
    """The fewest boxes that hold these cells and no other one that exists; the largest first."""
    return axes.split(results).fewest()


def compact(results: Sequence[Placed], axes: Domain, *, limit: int) -> list[str]:
    """The patterns of these cells, at most `limit` of them: the rest is counted.

    Where there are more, a few that hold some other cells too are offered beside them, with their counterexamples.
    """
    split = axes.split(results)
    found = split.fewest()
    lines = [say(box, axes) for box in found[:limit]]
    if len(found) <= limit:
        return lines
    left = _left_out(found[:limit], {axes.cell(one) for one in results})
    lines.append(f"… and {left:,} more in {count(len(found) - limit, 'pattern')}")
    rough = split.roughly(found)
    if len(rough) <= limit:
        lines += [
            f"nearly: {say(box, axes)} ({box.inside:,} cells; not {count(box.outside, 'other')})" for box in rough
        ]
    return lines


def _left_out(found: Sequence[Box], cells: set[patterns.Cell]) -> int:
    """How many of the cells none of the boxes holds."""
    taken = [[frozenset(values) for values in box.widest] for box in found]
    return sum(
        not any(all(one in values for one, values in zip(cell, box, strict=True)) for box in taken) for cell in cells
    )


def say(box: Box, axes: Mapping[str, tuple[AxisValue, ...]]) -> str:
    """One box in words. What has all values of an axis says nothing about it."""
    words = [
        _axis(axis, [values[one] for one in used], [values[one] for one in widest], values)
        for (axis, values), used, widest in zip(axes.items(), box.used, box.widest, strict=True)
        if len(widest) < len(values)
    ]
    return " ".join(words) or EVERYTHING


def _axis(axis: str, used: list[AxisValue], widest: list[AxisValue], values: tuple[AxisValue, ...]) -> str:
    """Values of one axis: two are listed, more are said as a range, by the one left out, or as odd or even ones."""
    prefix = PREFIX.get(axis, "" if axis in BARE else f"{axis}=")
    joint = f",{prefix}" if axis == "chunk" else ","
    listed = prefix + joint.join(map(str, used))
    if len(used) <= 2:
        return one_line(listed, 200)
    name = (prefix or axis).rstrip("= ")
    for taken in (used, widest):
        left_out = [value for value in values if value not in taken]
        words = [f"{name}!={left_out[0]}"] if len(left_out) == 1 else []
        if all(isinstance(value, int) for value in values):
            words = _ranges(name, taken, values, parity=None) + words
            words += _ranges(name, taken, values, parity=1) + _ranges(name, taken, values, parity=0)
        if words:
            return one_line(words[0], 200)
    return one_line(listed, 200)


def _ranges(name: str, taken: Sequence[AxisValue], values: Sequence[AxisValue], *, parity: int | None) -> list[str]:
    """`k>=3`, `k<=5`, `k1-3`, or with a parity `odd k`, `even k>=2`; nothing where a value between is missing."""
    numbers = sorted(map(int, taken))
    pool = [one for one in sorted(map(int, values)) if parity is None or one % 2 == parity]
    if [one for one in pool if numbers[0] <= one <= numbers[-1]] != numbers:
        return []
    match numbers[0] == pool[0], numbers[-1] == pool[-1]:
        case True, True:
            words = name
        case False, True:
            words = f"{name}>={numbers[0]}"
        case True, False:
            words = f"{name}<={numbers[-1]}"
        case _:
            words = f"{name}{numbers[0]}-{numbers[-1]}" if len(name) == 1 else f"{name}={numbers[0]}-{numbers[-1]}"
    return [words if parity is None else f"{'odd' if parity else 'even'} {words}"]
