"""Entries narrowed to where a run shows that they hold, or taken out. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from runner import regions
from runner.axes import AxisValues
from runner.conditions import Condition, Selector
from runner.expectations import gone
from runner.known import judging
from runner.known.entries import Change, fewest, inside, region, reworded
from runner.matrix import KnownIssue, Matrix
from runner.model import AxisValue, CellResult, State
from runner.reports.text import count


def prune(rows: Sequence[CellResult], chart: Matrix, *, today: date) -> Change:
    """Entries out of the cells where the run refutes them; out altogether where they have expired or match nothing.

    An entry that has expired and is still so stays: to forget it is a person's decision.
    """
    rows = inside(rows, chart)
    fitted: dict[int, tuple[KnownIssue, ...]] = {}
    notes = []
    for i, entry in enumerate(chart.known):
        name = f"known issue {i + 1} ({entry.issue})"
        spoken_of = [row for row in rows if entry.selector.matches(row.axes)]
        if not matches_a_cell(entry, chart):
            fitted[i] = ()
            notes.append(f"{name} matches no cell: taken out")
        elif isinstance(entry.until, date) and today > entry.until:
            bad = sum(judging.shown(entry, row) for row in spoken_of)
            if bad:
                notes.append(
                    f"{name} has expired on {entry.until}, and it is still so in {count(bad, 'cell')}: left there"
                )
            else:
                fitted[i] = ()
                notes.append(f"{name} has expired on {entry.until}: taken out")
        elif (narrowed := narrow(entry, spoken_of, chart, today)) is not None:
            fitted[i] = narrowed
            notes.append(f"{name} {_how_narrowed(entry, narrowed, spoken_of)}")
        elif (left := replace(entry, selector=reworded(entry, region(entry, chart), chart))) != entry:
            fitted[i] = (left,)
            notes.append(f"{name} names values that no axis has: narrowed")
    return Change(fitted, notes=tuple(notes))


def narrow(entry: KnownIssue, rows: Sequence[CellResult], chart: Matrix, today: date) -> tuple[KnownIssue, ...] | None:
    """What is left of an entry, given results of cells that it speaks of; None where nothing refutes it.

    What the run did not see stays: of an axis that the entry lists values of, the values that no result has; of another
    axis, the values that no result has stay beside those where the entry holds.
    """
    rows = [row for row in rows if not entry.has_expired(row.axes, today)]
    if not any(judging.refuted(entry, row) for row in rows):
        return None
    spoken_of = region(entry, chart)
    seen = {axis: {row.axes[axis] for row in rows} for axis in chart.axes}
    listed = [axis for axis, condition in entry.selector.conditions.items() if condition.op == "="]
    known_values = {axis: Condition("=", tuple(v for v in spoken_of[axis] if v in seen[axis])) for axis in listed}
    left = [(one, entry.buffer) for one in regions.less(spoken_of, Selector(known_values))]
    still: dict[tuple[str, ...], list[CellResult]] = defaultdict(list)
    for row in rows:
        if judging.shown(entry, row):
            missing = gone(entry, row) if row.state is State.OVERFLOW else ()
            still[tuple(buffer for buffer in entry.buffer if buffer not in missing)].append(row)
    nothing_said = [row.axes for row in rows if not (judging.shown(entry, row) or judging.refuted(entry, row))]
    for buffers, cells in still.items():
        boxes = fewest([row.axes for row in cells], nothing_said, chart)
        left += [(_lifted(box, spoken_of, seen, listed), buffers) for box in boxes]
    found = tuple(replace(entry, selector=reworded(entry, axes, chart), buffer=buffer) for axes, buffer in left)
    return tuple(one for one in found if _counts_somewhere(one, chart))


def _counts_somewhere(entry: KnownIssue, chart: Matrix) -> bool:
    """Whether there is a cell that the entry matches, and a release in which it has not ended."""
    axes = region(entry, chart)
    return matches_a_cell(entry, chart) and not entry.after.issuperset(axes["vllm"])


def matches_a_cell(entry: KnownIssue, chart: Matrix) -> bool:
    """Whether there is a cell that the entry speaks of and no rule excludes."""
    return next(regions.left(region(entry, chart), [rule.selector for rule in chart.rules]), None) is not None


def _lifted(
    box: AxisValues, spoken_of: AxisValues, seen: dict[str, set[AxisValue]], listed: Sequence[str]
) -> AxisValues:
    """The box with those values of the entry that no result has; not of the axes that it lists values of."""
    return {
        axis: tuple(v for v in values if v in box[axis] or (axis not in listed and v not in seen[axis]))
        for axis, values in spoken_of.items()
    }


def _how_narrowed(entry: KnownIssue, left: Sequence[KnownIssue], rows: Sequence[CellResult]) -> str:
    over = count(sum(judging.refuted(entry, row) for row in rows), "cell")
    if not left:
        return f"is over in {over} and has no other: taken out"
    return f"is over in {over}: narrowed" + (f" to {len(left)} entries" if len(left) > 1 else "")
