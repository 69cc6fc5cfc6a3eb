"""What a known issue says, as data that can be changed: where it speaks, and until when."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import product
from math import prod

from runner import patterns, regions
from runner.axes import AxisValues
from runner.conditions import Condition, Selector
from runner.errors import UsageError
from runner.matrix import KnownIssue, Matrix
from runner.matrix_messages import END
from runner.model import AxisValue, CellResult
from runner.nearest import hint, quoted

MOST = 200_000
"""Combinations of values among which regions are looked for."""


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of the known issues of a matrix."""

    fitted: Mapping[int, tuple[KnownIssue, ...]] = field(default_factory=dict)
    """By position, what stands in the place of an entry: nothing, itself changed, or several. Others stay."""
    added: tuple[KnownIssue, ...] = ()
    """Behind the last one."""
    notes: tuple[str, ...] = ()
    """What a person should hear about it, and about what is left alone."""

    def __bool__(self) -> bool:
        return bool(self.fitted or self.added)

    def of(self, known: Sequence[KnownIssue]) -> tuple[KnownIssue, ...]:
        """The known issues after the change."""
        kept = [one for i, entry in enumerate(known) for one in self.fitted.get(i, (entry,))]
        return (*kept, *self.added)


def where(axes: AxisValues, chart: Matrix) -> Selector:
    """The selector of these cells; an axis that has all its values is left out, but never all of them."""
    said = {axis: values for axis, values in axes.items() if len(values) < len(chart.axes[axis])}
    return Selector({axis: Condition("=", tuple(values)) for axis, values in (said or {"vllm": axes["vllm"]}).items()})


def region(entry: KnownIssue, chart: Matrix) -> AxisValues:
    """For each axis, the values of the cells that an entry speaks of."""
    return regions.of(entry.selector, chart.axes)


def names_what_is_gone(condition: Condition, values: Sequence[AxisValue]) -> bool:
    """Whether a condition lists a value that its axis does not have any more."""
    return condition.op in ("=", "!=") and not set(condition.values).issubset(values)


def reworded(entry: KnownIssue, axes: AxisValues, chart: Matrix) -> Selector:
    """The selector of these cells, with the entry's own words for an axis where they say the same."""
    before = region(entry, chart)
    same = {
        axis: condition
        for axis, condition in entry.selector.conditions.items()
        if before[axis] == axes[axis] and not names_what_is_gone(condition, chart.axes[axis])
    }
    return Selector({**where(axes, chart).conditions, **same})


def fewest(
    must: Iterable[Mapping[str, AxisValue]], may: Iterable[Mapping[str, AxisValue]], chart: Matrix
) -> list[AxisValues]:
    """The fewest regions that hold all of the cells of `must`, and no others but such of `may`.

    UsageError where the cells are spread over more combinations than can be looked at.
    """
    wanted, free = ({tuple(axes[axis] for axis in chart.axes) for axes in each} for each in (must, may))
    if not wanted:
        return []
    there = [
        [value for value in values if value in taken]
        for values, taken in zip(chart.axes.values(), map(set, zip(*wanted, *free, strict=True)), strict=True)
    ]
    if (combinations := prod(map(len, there))) > MOST:
        raise UsageError(f"the cells are spread over {combinations:,} combinations: take them in parts, with --filter")
    places = [{value: number for number, value in enumerate(values)} for values in there]
    existing = [cell for cell in product(*there) if cell in wanted or cell not in free]
    grid = patterns.Grid([_placed(cell, places) for cell in existing], [len(values) for values in there])
    found = grid.split([_placed(cell, places) for cell in wanted]).fewest()
    return sorted(
        (dict(zip(chart.axes, _taken(box, there, chart), strict=True)) for box in found),
        key=lambda one: [[chart.axes[axis].index(value) for value in values] for axis, values in one.items()],
    )


def _placed(cell: tuple[AxisValue, ...], places: Sequence[Mapping[AxisValue, int]]) -> patterns.Cell:
    return tuple(place[value] for place, value in zip(places, cell, strict=True))


def _taken(box: patterns.Box, there: Sequence[Sequence[AxisValue]], chart: Matrix) -> Iterator[tuple[AxisValue, ...]]:
    """For each axis all of its values where the box may have them, so that it need not be said; else those it uses."""
    for all_, values, used, widest in zip(chart.axes.values(), there, box.used, box.widest, strict=True):
        yield tuple(values[one] for one in (widest if len(widest) == len(all_) else used))


def ends(text: str | None, chart: Matrix) -> tuple[date | str | None, frozenset[AxisValue]]:
    """What `--until TEXT` means: a day, or a release and those behind it. UsageError where it is neither."""
    if text is None:
        return None, frozenset()
    releases = chart.axes["vllm"]
    if text in releases:
        return text, frozenset(releases[releases.index(text) + 1 :])
    try:
        return date.fromisoformat(text), frozenset()
    except ValueError:
        raise UsageError(f"--until must be {END}, not {quoted(text)}{hint(text, releases)}") from None


def inside(rows: Iterable[CellResult], chart: Matrix) -> list[CellResult]:
    """The results of cells that the matrix has: not of candidates, nor of values that were taken out of it."""
    return [row for row in rows if all(row.axes.get(axis) in values for axis, values in chart.axes.items())]
