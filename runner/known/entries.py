"""What a known issue says, as data that can be changed: where it speaks, and until when."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from runner import regions
from runner.axes import AxisValues
from runner.conditions import Condition, Selector
from runner.errors import UsageError
from runner.matrix import KnownIssue, Matrix
from runner.matrix_messages import END
from runner.model import AxisValue, CellResult, Evidence, State, Verdict
from runner.nearest import hint, quoted
from runner.reports import patterns


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


def fewest(
    must: Iterable[Mapping[str, AxisValue]], may: Iterable[Mapping[str, AxisValue]], chart: Matrix
) -> list[AxisValues]:
    """Few regions that hold all of the cells of `must`, and no others but such of `may`."""
    wanted = {tuple(axes[axis] for axis in chart.axes) for axes in must}
    alone = patterns.boxes([_row(values, chart) for values in wanted], chart.axes)
    free = {tuple(axes[axis] for axis in chart.axes) for axes in may} - wanted
    together = patterns.boxes([_row(values, chart) for values in wanted | free], chart.axes) if free else alone
    needed = [box for box in together if any(_in(values, box) for values in wanted)]
    order = {axis: {value: i for i, value in enumerate(values)} for axis, values in chart.axes.items()}
    found = [dict(zip(chart.axes, box, strict=True)) for box in min(alone, needed, key=len)]
    return sorted(found, key=lambda one: [[order[axis][value] for value in values] for axis, values in one.items()])


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


def _row(values: tuple[AxisValue, ...], chart: Matrix) -> CellResult:
    """What the search for patterns takes: of a result it looks at the axes alone."""
    axes = dict(zip(chart.axes, values, strict=True))
    return CellResult(id="", axes=axes, state=State.PASS, verdict=Verdict.PASS, evidence=Evidence.EMULATED)


def _in(values: tuple[AxisValue, ...], box: patterns.Box) -> bool:
    return all(value in taken for value, taken in zip(values, box, strict=True))
