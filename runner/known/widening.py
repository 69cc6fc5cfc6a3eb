"""The entries of one issue fitted to a run: narrowed to where they hold, and widened to where it shows too. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from runner import regions
from runner.errors import UsageError
from runner.expectations import explains, refuted, shown
from runner.known import judging
from runner.known.entries import Change, excluded, fewest, inside, region, reworded, speaking, where
from runner.known.narrowing import narrow, told
from runner.matrix import KnownIssue, Matrix
from runner.model import AxisValue, CellResult
from runner.nearest import hint, quoted
from runner.reports.text import count


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

    An entry is widened along one axis, where every cell that it then speaks of was seen with the trouble; what is
    beyond that becomes entries that say exactly what was seen. UsageError where no entry has this issue.
    """
    if not any(entry.issue == issue for entry in chart.known):
        links = dict.fromkeys(entry.issue for entry in chart.known)
        raise UsageError(f"no known issue has the link {quoted(issue)}{hint(issue, links)} (see `runner known list`)")
    rows = inside(rows, chart)
    fitted: dict[int, tuple[KnownIssue, ...]] = {}
    mine: list[KnownIssue] = []
    told_of: list[str] = []
    for i, entry in enumerate(chart.known):
        if entry.issue != issue:
            continue
        said = replace(entry, owner=entry.owner if owner is None else owner)
        if until is not None:
            said = replace(said, until=until[0], after=until[1])
        mine.append(said)
        narrowed = narrow(said, rows, chart)
        told_of += told(f"known issue {i + 1} ({issue})", narrowed)
        if narrowed.left is not None:
            fitted[i] = narrowed.left
        elif (wider := _widened(said, rows, Change(fitted).of(chart.known), chart, today)) != entry:
            fitted[i] = (wider,)
    found, notes = judging.unexpected(rows, Change(fitted).of(chart.known), today)
    added, more = _beyond(found, mine, rows, chart, today)
    return Change(fitted, added, (*told_of, *notes, *more))


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
    rules = [rule.selector for rule in chart.rules]
    for axis, found in beside.items():
        more = {
            v: cells
            for v, cells in found.items()
            if _holds_in_all(entry, cells, regions.size(regions.left({**spoken_of, axis: (v,)}, rules)), today)
        }
        gained = sum(row.id in missed and shown(entry, row) for cells in more.values() for row in cells)
        if gained > most:
            values = tuple(v for v in chart.axes[axis] if v in spoken_of[axis] or v in more)
            best, most = replace(entry, selector=reworded(entry, {**spoken_of, axis: values}, chart)), gained
    return best


def _holds_in_all(entry: KnownIssue, cells: Sequence[CellResult], there: int | None, today: date) -> bool:
    """Whether these are results of all cells that there are, and each has the trouble, wholly."""
    so = {row.id for row in cells if shown(entry, row) and not entry.has_expired(row.axes, today)}
    return len(so) == there and not any(refuted(entry, row) for row in cells)


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
    free = excluded(rows, chart)
    added = tuple(
        speaking(replace(mine[i], selector=where(axes, chart), buffer=buffer), wanted, chart)
        for (i, buffer), wanted in cells.items()
        for axes in fewest([row.axes for row in wanted], free, chart)
    )
    notes = [f"left alone: {count(ended, 'cell')} after the end of the entry: give --until"] if ended else []
    return added, notes
