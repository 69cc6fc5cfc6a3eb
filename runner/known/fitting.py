"""Entries fitted to what a run shows: narrowed to where they hold, widened, or taken out. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from runner import regions
from runner.axes import AxisValues
from runner.conditions import Condition, Selector
from runner.errors import UsageError
from runner.expectations import explains, gone
from runner.known import judging
from runner.known.entries import Change, fewest, inside, names_what_is_gone, region, where
from runner.matrix import KnownIssue, Matrix
from runner.model import AxisValue, CellResult, State
from runner.nearest import hint, quoted
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
                notes.append(f"{name} has expired on {entry.until}, and {count(bad, 'cell')} still have it: left there")
            else:
                fitted[i] = ()
                notes.append(f"{name} has expired on {entry.until}: taken out")
        elif (narrowed := narrow(entry, spoken_of, chart, today)) is not None:
            fitted[i] = narrowed
            notes.append(f"{name} {_how_narrowed(entry, narrowed, spoken_of)}")
        elif (left := replace(entry, selector=_kept(entry, region(entry, chart), chart))) != entry:
            fitted[i] = (left,)
            notes.append(f"{name} names values that no axis has: narrowed")
    return Change(fitted, notes=tuple(notes))


def update(
    rows: Sequence[CellResult],
    chart: Matrix,
    issue: str,
    *,
    today: date,
    until: tuple[date | str, frozenset[AxisValue]] | None = None,
    owner: str | None = None,
) -> Change:
    """The entries of one issue, narrowed to where they hold, and widened to where the run shows the same trouble.

    An entry is widened along one axis, where every cell that it then speaks of and that was judged has the trouble;
    what is beyond that becomes entries that say exactly what was seen. UsageError where no entry has this issue.
    """
    if not any(entry.issue == issue for entry in chart.known):
        links = dict.fromkeys(entry.issue for entry in chart.known)
        raise UsageError(
            f"no known issue has the link {quoted(issue)}{hint(issue, links)}: `runner known list` has all"
        )
    rows = inside(rows, chart)
    fitted: dict[int, tuple[KnownIssue, ...]] = {}
    mine = []
    for i, entry in enumerate(chart.known):
        if entry.issue != issue:
            continue
        said = replace(entry, owner=entry.owner if owner is None else owner)
        if until is not None:
            said = replace(said, until=until[0], after=until[1])
        mine.append(said)
        narrowed = narrow(said, [row for row in rows if said.selector.matches(row.axes)], chart, today)
        if narrowed is not None:
            fitted[i] = narrowed
        elif (wider := _widened(said, rows, Change(fitted).of(chart.known), chart, today)) != entry:
            fitted[i] = (wider,)
    found, notes = judging.unexpected(rows, Change(fitted).of(chart.known), today)
    added, more = _beyond(found, mine, rows, chart, today)
    return Change(fitted, added, (*notes, *more))


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
    found = tuple(replace(entry, selector=_kept(entry, axes, chart), buffer=buffer) for axes, buffer in left)
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


def _kept(entry: KnownIssue, axes: AxisValues, chart: Matrix) -> Selector:
    """The selector of these cells, with the entry's own words for an axis where they say the same."""
    before = region(entry, chart)
    same = {
        axis: condition
        for axis, condition in entry.selector.conditions.items()
        if before[axis] == axes[axis] and not names_what_is_gone(condition, chart.axes[axis])
    }
    return Selector({**where(axes, chart).conditions, **same})


def _widened(
    entry: KnownIssue, rows: Sequence[CellResult], known: Sequence[KnownIssue], chart: Matrix, today: date
) -> KnownIssue:
    """The entry with more values of that axis along which it covers most of what nobody expects; itself where none."""
    spoken_of = region(entry, chart)
    missed = {one.row.id for one in judging.unexpected(rows, known, today)[0]}
    beside: dict[str, dict[AxisValue, list[CellResult]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        outside = [axis for axis, values in spoken_of.items() if row.axes[axis] not in values]
        if len(outside) == 1:
            beside[outside[0]][row.axes[outside[0]]].append(row)
    best, most = entry, 0
    for axis, found in beside.items():
        more = {v: cells for v, cells in found.items() if _holds_in_all(entry, cells, today)}
        gained = sum(row.id in missed and judging.shown(entry, row) for cells in more.values() for row in cells)
        if gained > most:
            values = tuple(v for v in chart.axes[axis] if v in spoken_of[axis] or v in more)
            best, most = replace(entry, selector=_kept(entry, {**spoken_of, axis: values}, chart)), gained
    return best


def _holds_in_all(entry: KnownIssue, cells: Sequence[CellResult], today: date) -> bool:
    """Whether the trouble is in some of these cells and nothing refutes that it is in all."""
    live = not any(entry.has_expired(row.axes, today) for row in cells)
    return live and any(judging.shown(entry, r) for r in cells) and not any(judging.refuted(entry, r) for r in cells)


def _beyond(
    found: Sequence[judging.Unexpected],
    mine: Sequence[KnownIssue],
    rows: Sequence[CellResult],
    chart: Matrix,
    today: date,
) -> tuple[tuple[KnownIssue, ...], list[str]]:
    """Entries, made after those of an issue, for cells that show nothing else; and what is to be said of others."""
    cells: dict[tuple[int, tuple[str, ...]], list[CellResult]] = defaultdict(list)
    ended = 0
    for one in found:
        like = [next((i for i, e in enumerate(mine) if explains(e, trouble)), None) for trouble in one.missed]
        sources = [i for i in like if i is not None]
        if len(sources) < len(like):
            continue
        if any(mine[i].has_expired(one.row.axes, today) for i in sources):
            ended += 1
            continue
        for i, trouble in zip(sources, one.missed, strict=True):
            several = trouble.overflow is not None and len(mine[i].buffer) > 1
            buffer = (trouble.overflow.buffer,) if several and trouble.overflow else mine[i].buffer
            cells[i, buffer].append(one.row)
    excluded = [row.axes for row in rows if row.state is State.UNSUPPORTED]
    added = tuple(
        replace(mine[i], selector=where(axes, chart), buffer=buffer)
        for (i, buffer), wanted in cells.items()
        for axes in fewest([row.axes for row in wanted], excluded, chart)
    )
    notes = [f"{count(ended, 'cell')} have it after the end of the entry: give --until"] if ended else []
    return added, notes


def _how_narrowed(entry: KnownIssue, left: Sequence[KnownIssue], rows: Sequence[CellResult]) -> str:
    over = count(sum(judging.refuted(entry, row) for row in rows), "cell")
    if not left:
        return f"is over in {over} and has no other: taken out"
    return f"is over in {over}: narrowed" + (f" to {len(left)} entries" if len(left) > 1 else "")
