"""Known issues: what is known and still so is expected; what is known and now passes is a surprise. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from runner.matrix import KnownIssue
from runner.model import CellResult, State, Verdict

_DEATHS = frozenset({State.CRASH, State.OOM, State.TIMEOUT})


def apply(result: CellResult, known: Sequence[KnownIssue], *, today: date) -> CellResult:
    """The result with its verdict.

    `xfail` needs everything bad in the cell to be covered: a new failure never hides behind an old one in it.
    `xpass` is a pass where an entry expects trouble. All else keeps its state, and the reason says why an entry that
    speaks of this cell did not count. Without entries (`--no-known`) the verdict is the naked state.
    """
    naked = replace(result, verdict=Verdict(result.state.value), known="")
    matching = [entry for entry in known if entry.selector.matches(result.axes)]
    entries = [entry for entry in matching if entry.until is None or today <= entry.until]
    if result.state is State.PASS:
        if not entries:
            return naked
        reason = f"{_links(entries)} is known here as {entries[0].state}, but the cell passes: take the entry out"
        return replace(naked, verdict=Verdict.XPASS, known=_links(entries), reason=reason)
    if not result.state.bad:
        return naked
    uncovered = _uncovered(result, entries)
    if not uncovered:
        return replace(naked, verdict=Verdict.XFAIL, known=_links(_holding(result, entries)))
    if entries and len(uncovered) < len(_bad(result)):
        return _note(naked, f"{_links(entries)} does not cover {', '.join(uncovered)}")
    for entry in matching:
        if entry.until is not None and today > entry.until and entry.state in _bad(result).values():
            return _note(naked, f"the known issue {entry.issue} has expired on {entry.until}")
    return naked


def _bad(result: CellResult) -> dict[str, State]:
    """What is bad in a cell, by name; what did not run because the process had died before is a consequence."""
    bad = {
        case.name: case.state
        for case in result.cases
        if case.state.bad and not (case.state is State.NOT_RUN and result.state in _DEATHS)
    }
    return bad if result.state in bad.values() else {"the cell": result.state, **bad}


def _holding(result: CellResult, entries: Sequence[KnownIssue]) -> list[KnownIssue]:
    """The entries that explain something in this cell."""
    shown = {overflow.how for overflow in result.overflow}
    states = set(_bad(result).values())
    return [entry for entry in entries if entry.state in states and (not entry.how or shown & set(entry.how))]


def _uncovered(result: CellResult, entries: Sequence[KnownIssue]) -> list[str]:
    """The names of what is bad and no entry explains; each way in which a buffer showed itself must be covered too."""
    shown = {case.name: {overflow.how for overflow in case.overflow} for case in result.cases}
    shown["the cell"] = {overflow.how for overflow in result.overflow}
    names = []
    for name, state in _bad(result).items():
        fitting = [entry for entry in entries if entry.state is state]
        ways = {how for entry in fitting for how in entry.how}
        anyway = any(not entry.how for entry in fitting)
        if not (anyway or (shown[name] and shown[name] <= ways)):
            names.append(name)
    return names


def _links(entries: Sequence[KnownIssue]) -> str:
    return " ".join(dict.fromkeys(entry.issue for entry in entries))


def _note(result: CellResult, text: str) -> CellResult:
    return replace(result, reason=f"{result.reason} ({text})" if result.reason else text)
