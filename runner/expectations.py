"""Known issues: what is known and still so is expected; what is known and now passes is a surprise. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from runner.matrix import KnownIssue
from runner.model import CellResult, Overflow, State, Verdict

_DEATHS = frozenset({State.CRASH, State.OOM, State.TIMEOUT})


def apply(result: CellResult, known: Sequence[KnownIssue], *, today: date) -> CellResult:
    """The result with its verdict.

    `xfail` needs everything bad in the cell to be covered: a new failure never hides behind an old one in it.
    `xpass` is a pass where an entry expects trouble, or a buffer that an entry names and that holds. All else keeps its
    state, and the reason says why an entry that speaks of this cell did not count. Without entries (`--no-known`) the
    verdict is the naked state.
    """
    naked = replace(result, verdict=Verdict(result.state.value), known="")
    matching = [entry for entry in known if entry.selector.matches(result.axes)]
    entries = [entry for entry in matching if entry.until is None or today <= entry.until]
    if result.state is State.PASS:
        if not entries:
            return naked
        return _surprise(naked, entries, f"{entries[0].state}, but the cell passes")
    if not result.state.bad:
        return naked
    uncovered = _uncovered(result, entries)
    if not uncovered:
        if result.state is State.OVERFLOW and (gone := _gone(result, entries)):
            buffers = ", ".join(buffer for _, buffer in gone)
            return _surprise(naked, [entry for entry, _ in gone], f"overflow in {buffers}, which holds")
        return replace(naked, verdict=Verdict.XFAIL, known=_links(_holding(result, entries)))
    if entries and _holding(result, entries):
        return _note(naked, f"{_links(entries)} does not cover {', '.join(uncovered)}")
    for entry in matching:
        if entry.until is not None and today > entry.until and entry.state in _bad(result).values():
            return _note(naked, f"the known issue {entry.issue} has expired on {entry.until}")
    return naked


def _surprise(naked: CellResult, entries: Sequence[KnownIssue], what: str) -> CellResult:
    links = _links(entries)
    return replace(
        naked, verdict=Verdict.XPASS, known=links, reason=f"{links} is known here as {what}: take the entry out"
    )


def _bad(result: CellResult) -> dict[str, State]:
    """What is bad in a cell, by name; what did not run because the process had died before is a consequence."""
    bad = {
        case.name: case.state
        for case in result.cases
        if case.state.bad and not (case.state is State.NOT_RUN and result.state in _DEATHS)
    }
    return bad if result.state in bad.values() else {"the cell": result.state, **bad}


def _covers(entry: KnownIssue, overflow: Overflow) -> bool:
    return (not entry.buffer or overflow.buffer in entry.buffer) and (not entry.how or overflow.how in entry.how)


def _holding(result: CellResult, entries: Sequence[KnownIssue]) -> list[KnownIssue]:
    """The entries that explain something in this cell."""
    states = set(_bad(result).values())
    return [
        entry
        for entry in entries
        if entry.state in states and (not result.overflow or any(_covers(entry, one) for one in result.overflow))
    ]


def _uncovered(result: CellResult, entries: Sequence[KnownIssue]) -> list[str]:
    """The names of what is bad and no entry explains; each overflow of a case must be covered."""
    shown = {case.name: case.overflow for case in result.cases} | {"the cell": result.overflow}
    names = []
    for name, state in _bad(result).items():
        fitting = [entry for entry in entries if entry.state is state]
        if state is State.OVERFLOW and shown[name]:
            names += [
                f"{name} ({one.buffer} {one.how})"
                for one in shown[name]
                if not any(_covers(entry, one) for entry in fitting)
            ]
        elif not any(not entry.buffer and not entry.how for entry in fitting):
            names.append(name)
    return names


def _gone(result: CellResult, entries: Sequence[KnownIssue]) -> list[tuple[KnownIssue, str]]:
    """The entries that name a buffer, and the buffer, where it did not overflow."""
    return [
        (entry, buffer)
        for entry in entries
        for buffer in entry.buffer
        if not any(one.buffer == buffer and _covers(entry, one) for one in result.overflow)
    ]


def _links(entries: Sequence[KnownIssue]) -> str:
    return " ".join(dict.fromkeys(entry.issue for entry in entries))


def _note(result: CellResult, text: str) -> CellResult:
    return replace(result, reason=f"{result.reason} ({text})" if result.reason else text)
