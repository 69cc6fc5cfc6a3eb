"""What a run says about known issues: the trouble that nobody expects, and what of it an entry could cover. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from runner import expectations
from runner.expectations import Trouble
from runner.matrix import KnownIssue
from runner.model import AxisValue, CellResult, Fault, State, Verdict
from runner.reports.text import count


@dataclass(frozen=True, slots=True)
class Unexpected:
    """A cell with product trouble that no known issue covers."""

    row: CellResult
    missed: tuple[Trouble, ...]


def judged(rows: Iterable[CellResult], known: Sequence[KnownIssue], today: date) -> list[CellResult]:
    """The results with the verdicts that these known issues give them."""
    return [expectations.apply(row, known, today=today) for row in rows]


def living(known: Iterable[KnownIssue], axes: Mapping[str, AxisValue], today: date) -> list[KnownIssue]:
    """The entries that count for a cell."""
    return [entry for entry in known if entry.selector.matches(axes) and not entry.has_expired(axes, today)]


def unexpected(
    rows: Iterable[CellResult], known: Sequence[KnownIssue], today: date
) -> tuple[list[Unexpected], list[str]]:
    """The cells that more entries could make expected; and, in words, those that none could."""
    found, other, surprised = [], 0, 0
    for row in rows:
        if not row.state.bad or row.state.fault is not Fault.PRODUCT:
            continue
        entries = living(known, row.axes, today)
        missed = expectations.uncovered(row, entries)
        if not missed:
            continue
        if any(trouble.state.fault is not Fault.PRODUCT for trouble in missed):
            other += 1
        elif row.state is State.OVERFLOW and any(expectations.gone(e, row) for e in entries if not e.flaky):
            surprised += 1
        else:
            found.append(Unexpected(row, tuple(missed)))
    notes = []
    if other:
        notes.append(
            f"left alone: {count(other, 'cell')} with trouble of machine or harness too, which no entry covers"
        )
    if surprised:
        because = "where an entry expects a buffer to overflow that holds"
        notes.append(f"left alone: {count(surprised, 'cell')} {because}: `runner known prune` first")
    return found, notes


def surprises(before: Iterable[CellResult], after: Iterable[CellResult]) -> list[CellResult]:
    """The cells that were expected, or passed, and would not be any more."""
    return [
        new
        for old, new in zip(before, after, strict=True)
        if new.verdict is not old.verdict and new.verdict.fault is not Fault.NONE and old.verdict is not Verdict.XPASS
    ]
