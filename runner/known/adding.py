"""Entries for trouble that nobody knows yet: as few as say it exactly. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from runner.conditions import Selector
from runner.errors import UsageError
from runner.expectations import Trouble
from runner.known import judging
from runner.known.entries import Change, excluded, fewest, inside, speaking, where
from runner.matrix import KnownIssue, Matrix
from runner.model import AxisValue, CellResult, How, State, Verdict
from runner.reports.text import one_line


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a person says of new entries, which no run can know."""

    issue: str
    because: str
    owner: str = ""
    until: date | str | None = None
    after: frozenset[AxisValue] = frozenset()
    flaky: bool = False

    def entry(self, state: State, *, flaky: bool = False) -> KnownIssue:
        """An entry for trouble of this kind, as yet without cells."""
        return KnownIssue(
            selector=Selector({}),
            state=state,
            issue=self.issue,
            because=self.because,
            owner=self.owner,
            until=self.until,
            after=self.after,
            flaky=self.flaky or flaky,
        )


Kind = tuple[State, str, How | None, bool]
"""State, buffer and how of trouble that one entry covers, and whether it was seen to come and go."""


def add(
    rows: Sequence[CellResult], chart: Matrix, said: Said, *, today: date, leaving_out: Sequence[str] = ()
) -> Change:
    """Entries for each cell with product trouble that no known issue covers.

    An entry speaks of the cells that showed its trouble and of no others; a cell that passed when it was run again
    makes it flaky. `leaving_out` names axes of which the entries are to say nothing, so that they speak of cells that
    nobody has seen. UsageError where one that was seen contradicts that.
    """
    rows = inside(rows, chart)
    found, notes = judging.unexpected(rows, chart.known, today)
    cells: dict[Kind, list[CellResult]] = defaultdict(list)
    for one in found:
        for trouble in one.missed:
            cells[kind(trouble, flaky=State.PASS in one.row.reruns)].append(one.row)
    free = excluded(rows, chart)
    added = []
    for (state, buffer, how, flaky), wanted in cells.items():
        bare = replace(said.entry(state, flaky=flaky), buffer=(buffer,) if buffer else (), how=(how,) if how else ())
        for axes in fewest([row.axes for row in wanted], free, chart):
            wider = {axis: chart.axes[axis] if axis in leaving_out else values for axis, values in axes.items()}
            added.append(speaking(replace(bare, selector=where(wider, chart)), wanted, chart))
    change = Change(added=_once(added), notes=tuple(notes))
    _check(rows, chart, change, today)
    return change


def kind(trouble: Trouble, *, flaky: bool = False) -> Kind:
    """What an entry must say to cover this trouble and no other."""
    if trouble.overflow is None:
        return trouble.state, "", None, flaky
    return trouble.state, trouble.overflow.buffer, trouble.overflow.how, flaky


def _once(entries: Sequence[KnownIssue]) -> tuple[KnownIssue, ...]:
    """Without those that say what another one says: with an axis left out, several may."""
    return tuple(entry for i, entry in enumerate(entries) if entry not in entries[:i])


def _check(rows: Sequence[CellResult], chart: Matrix, change: Change, today: date) -> None:
    before = judging.judged(rows, chart.known, today)
    after = judging.judged(rows, change.of(chart.known), today)
    if wrong := judging.surprises(before, after):
        one = wrong[0]
        what = "passes" if one.verdict is Verdict.XPASS else f"ends as {one.verdict}"
        raise UsageError(
            f"--any: the entries would speak of {one_line(one.id)} too, which {what}: leave fewer axes out"
        )
