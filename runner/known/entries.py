"""What a known issue says, as data that can be changed: where it speaks, and until when."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import product
from math import prod

from runner import patterns, regions
from runner.axes import AxisValues
from runner.conditions import Condition, Selector
from runner.errors import UsageError
from runner.expectations import LOADS, in_cell
from runner.matrix import KnownIssue, Matrix
from runner.matrix_messages import END
from runner.model import AxisValue, CellResult
from runner.nearest import hint, quoted
from runner.standing import Place

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


def speaking(entry: KnownIssue, rows: Iterable[CellResult], chart: Matrix) -> KnownIssue:
    """The entry, with its loads by name if it would say nothing of one of these cells otherwise."""
    if all(in_cell(entry, row) == entry for row in rows if entry.selector.matches(row.axes)):
        return entry
    loads = Condition("=", region(entry, chart)[LOADS])
    return replace(entry, selector=Selector({**entry.selector.conditions, LOADS: loads}))


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


FREE = "free"
"""The colour of cells that a box may hold: no matter of a known issue."""
WANTED = "wanted"


def fewest(
    must: Iterable[Mapping[str, AxisValue]], may: Iterable[Mapping[str, AxisValue]], chart: Matrix
) -> list[AxisValues]:
    """The fewest regions that hold all of the cells of `must`, and no others but such of `may`.

    UsageError where the cells are spread over more combinations than can be looked at.
    """
    wanted, free = ({tuple(axes[axis] for axis in chart.axes) for axes in each} for each in (must, may))
    return boxes(chart.axes, dict.fromkeys(free, FREE) | dict.fromkeys(wanted, WANTED), WANTED)


def boxes(
    region: AxisValues, colours: Mapping[Place, Hashable], wanted: Hashable, *, free: Collection[Hashable] = (FREE,)
) -> list[AxisValues]:
    """The fewest boxes that hold the cells of a region of one colour, and no others but such that are free.

    The cells that are not in `colours` are of the colour None, however many they are: values of an axis that have the
    same colours are put together first. UsageError where there are still more combinations than can be looked at.
    """
    together = [_alike(axis, values, colours) for axis, values in enumerate(region.values())]
    blank = [groups.pop(frozenset(), []) for groups in together]
    apart = [wanted is None and len(groups) == 1 and bool(rest) for groups, rest in zip(together, blank, strict=True)]
    kept = [
        [*groups.values(), *([rest] if rest and wanted is None and not alone else [])]
        for groups, rest, alone in zip(together, blank, apart, strict=True)
    ]
    if (combinations := prod(map(len, kept))) > MOST:
        raise UsageError(f"the cells are spread over {combinations:,} combinations: take them in parts, with --filter")
    existing = {
        cell: colour
        for cell in product(*(range(len(groups)) for groups in kept))
        if (colour := colours.get(tuple(group[i][0] for group, i in zip(kept, cell, strict=True)))) not in free
    }
    chosen = [cell for cell, colour in existing.items() if colour == wanted]
    minimal = patterns.Grid(list(existing), [len(groups) for groups in kept]).split(chosen).fewest() if chosen else []
    # what has a value that no coloured cell has is of no colour: a box of its own, and free for the others
    found = [{**region, axis: tuple(rest)} for axis, rest, alone in zip(region, blank, apart, strict=True) if alone]
    for box in minimal:
        taken = [
            {value for one in (widest if len(widest) == len(groups) else used) for value in groups[one]}
            | set(rest * alone)
            for groups, used, widest, rest, alone in zip(kept, box.used, box.widest, blank, apart, strict=True)
        ]
        values = zip(region.items(), taken, strict=True)
        found.append({axis: tuple(value for value in all_ if value in some) for (axis, all_), some in values})
    return sorted(found, key=lambda one: [[region[a].index(value) for value in values] for a, values in one.items()])


def _alike(
    axis: int, values: Sequence[AxisValue], colours: Mapping[Place, Hashable]
) -> dict[frozenset[tuple[Place, Hashable]], list[AxisValue]]:
    """The values of an axis by what they have: of those together each may stand for the other in every cell."""
    seen: dict[AxisValue, set[tuple[Place, Hashable]]] = defaultdict(set)
    for place, colour in colours.items():
        seen[place[axis]].add((place[:axis] + place[axis + 1 :], colour))
    found: dict[frozenset[tuple[Place, Hashable]], list[AxisValue]] = defaultdict(list)
    for value in values:
        found[frozenset(seen[value])].append(value)
    return found


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


def excluded(rows: Iterable[CellResult], chart: Matrix) -> list[Mapping[str, AxisValue]]:
    """The cells of results that no run will judge: a rule takes them out now, whatever was so when the run was made."""
    return [row.axes for row in rows if any(rule.selector.matches(row.axes) for rule in chart.rules)]
