"""What the matrix expects: known issues, which turn trouble into `xfail`, and the refusals that are right.

Pure: the day by which entries expire is given.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from runner.axes import RELEASES
from runner.matrix import Expectation, KnownIssue
from runner.model import AxisValue, Cell, CellResult, Overflow, State, Verdict

LOADS = "load"
"""The axis of the deployments."""

DEATHS = frozenset({State.CRASH, State.OOM, State.TIMEOUT})
"""The states of a cell whose process did not end by itself; where one is known, the cell is not run unless asked."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One bad thing in a cell: a case, or the cell itself, and of a case with overflows each of them."""

    name: str
    state: State
    overflow: Overflow | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.overflow.buffer} {self.overflow.how})" if self.overflow else self.name


def judged(
    results: Iterable[CellResult],
    *,
    known: Sequence[KnownIssue],
    expect: Sequence[Expectation],
    before: Mapping[AxisValue, AxisValue],
    today: date,
) -> tuple[CellResult, ...]:
    """The results with their verdicts, by all that the matrix expects; `before` is its own."""
    return refusals([apply(result, known, today=today) for result in results], expect, before)


def refusals(
    results: Sequence[CellResult], expect: Sequence[Expectation], before: Mapping[AxisValue, AxisValue]
) -> tuple[CellResult, ...]:
    """The results, of which a refusal is `refused` where an entry names its reason, and `refused!` elsewhere.

    Where the release before passes the same cell in the same results, only an entry that names releases is believed:
    what is refused since then is a loss, unless somebody wrote down that it is meant.
    """
    passed = {_but_release(one): set[AxisValue]() for one in results if one.state is State.REFUSED}
    for one in results:
        if one.state is State.PASS and (where := _but_release(one)) in passed:
            passed[where].add(one.axes.get(RELEASES, ""))
    return tuple(
        _refusal(one, expect, before.get(one.axes.get(RELEASES, "")), passed[_but_release(one)])
        if one.state is State.REFUSED
        else one
        for one in results
    )


def _refusal(
    result: CellResult, expect: Sequence[Expectation], before: AxisValue | None, passed: set[AxisValue]
) -> CellResult:
    lost = before in passed
    if entry := right(expect, result.axes, result.reason, passed_before=lost):
        return replace(result, verdict=Verdict.REFUSED, expected=entry.because)
    if lost and right(expect, result.axes, result.reason, passed_before=False):
        return _note(result, f"unexpected: {before} passes this cell, and the matrix names the reason for all releases")
    return _note(result, "unexpected: no entry under `expect` of the matrix names this reason")


def right(
    expect: Sequence[Expectation], axes: Mapping[str, AxisValue], reason: str, *, passed_before: bool
) -> Expectation | None:
    """The entry by which a refusal is right. Where the release before passes, it must name releases."""
    named = (entry for entry in expect if entry.names(axes, reason))
    return next((entry for entry in named if not passed_before or RELEASES in entry.selector.conditions), None)


def _but_release(result: CellResult) -> frozenset[tuple[str, AxisValue]]:
    return frozenset(item for item in result.axes.items() if item[0] != RELEASES)


def naked(state: State) -> Verdict:
    """The verdict of a state of which nothing is expected."""
    return Verdict.UNEXPECTED if state is State.REFUSED else Verdict(state.value)


def apply(result: CellResult, known: Sequence[KnownIssue], *, today: date) -> CellResult:
    """The result with the verdict that known issues give it; a refusal is unexpected until `refusals` says otherwise.

    `xfail` needs everything bad in the cell to be covered: a new failure never hides behind an old one in it.
    `xpass` is a pass where an entry expects trouble, or a buffer that an entry names and that holds: not where the
    deployment cannot overflow at all. `flaky` is a pass, or trouble that would not be covered otherwise, where an entry
    tolerates both. All else keeps its state, and the reason says why an entry that speaks of this cell did not count.
    Without entries (`--no-known`) the verdict is the naked state.
    """
    bare = replace(result, verdict=naked(result.state), known="", expired="", expected="")
    matching = [one for entry in known if entry.selector.matches(result.axes) and (one := in_cell(entry, result))]
    entries = [entry for entry in matching if not entry.has_expired(result.axes, today)]
    if result.state is State.SKIPPED:
        # skipped for another reason, it says nothing of what is known
        return replace(bare, known=_links(e for e in entries if e.state in DEATHS and e.issue in result.reason))
    over = [entry for entry in matching if entry not in entries and _still_speaks(entry, result)]
    bare = replace(bare, expired=_links(over))
    if result.state is State.PASS:
        return _of_a_pass(bare, entries)
    if not result.state.bad:
        return bare
    missed = uncovered(result, entries)
    if not missed:
        return _of_what_is_known(bare, entries)
    if holding := _holding(result, entries):
        bare = _note(bare, f"{_links(holding)} does not cover {', '.join(map(str, missed))}")
    for entry in over[:1]:
        when = f"on {entry.until}" if isinstance(entry.until, date) else f"after {entry.until}"
        bare = _note(bare, f"the known issue {entry.issue} has expired {when}")
    return bare


def today() -> date:
    """The day by which known issues expire: in UTC, the same for all machines."""
    return datetime.now(UTC).date()


def unwanted(known: Sequence[KnownIssue], today: date) -> Callable[[Cell], str]:
    """Says why a cell is better not run: it is known to take its process down; empty where nothing like it is known."""
    deaths = [entry for entry in known if entry.state in DEATHS]

    def why(cell: Cell) -> str:
        for entry in deaths:
            if entry.selector.matches(cell.axes) and not entry.has_expired(cell.axes, today):
                return f"{entry.state} is known here ({entry.issue}): not run without --run-known-crashes"
        return ""

    return why


def uncovered(result: CellResult, entries: Sequence[KnownIssue]) -> list[Trouble]:
    """What is bad in a cell and explained by none of these entries, all of which match it."""
    speaking = [one for entry in entries if (one := in_cell(entry, result))]
    return [trouble for trouble in troubles(result) if not any(explains(entry, trouble) for entry in speaking)]


def troubles(result: CellResult) -> list[Trouble]:
    """What is bad in a cell; what did not run because the process had died before is a consequence."""
    bad = {
        case.name: (case.state, case.overflow)
        for case in result.cases
        if case.state.bad and not (case.state is State.NOT_RUN and result.state in DEATHS)
    }
    if result.state.bad and result.state not in (state for state, _ in bad.values()):
        bad = {"the cell": (result.state, result.overflow), **bad}
    return [
        Trouble(name, State.OVERFLOW if overflow else state, overflow)
        for name, (state, overflows) in bad.items()
        for overflow in (*overflows, *(() if state is State.OVERFLOW and overflows else (None,)))
    ]


def explains(entry: KnownIssue, trouble: Trouble) -> bool:
    """Whether this trouble is what the entry, which speaks of its cell, expects."""
    if entry.state is not trouble.state:
        return False
    if trouble.overflow is None:
        return not entry.buffer and not entry.how
    return _covers(entry, trouble.overflow)


def in_cell(entry: KnownIssue, result: CellResult) -> KnownIssue | None:
    """What an entry says of a cell that it matches; None where it says nothing of it.

    An entry that names no load speaks of overflows wherever a load makes them possible. Where chunks make no batch of a
    load need more of a buffer than its requests alone do, which `bounds` of the result says, a pass is none of its
    business, and an overflow is another one. An entry that names loads means them.
    """
    bounds = result.resolved.get("bounds")
    if entry.state is not State.OVERFLOW or LOADS in entry.selector.conditions or not isinstance(bounds, Mapping):
        return entry
    if not entry.buffer:
        return entry if not bounds or any(map(_grows, bounds.values())) else None
    left = tuple(buffer for buffer in entry.buffer if _grows(bounds.get(buffer)))
    return replace(entry, buffer=left) if left else None


def shown(entry: KnownIssue, result: CellResult) -> bool:
    """Whether this cell, which the entry matches, has trouble that the entry expects."""
    one = in_cell(entry, result)
    return one is not None and any(explains(one, trouble) for trouble in troubles(result))


def refuted(entry: KnownIssue, result: CellResult) -> bool:
    """Whether a cell that the entry matches shows that it is not so there, or not all of it."""
    if entry.flaky or in_cell(entry, result) is None:
        return False
    return result.state is State.PASS or (result.state is State.OVERFLOW and bool(gone(entry, result)))


def gone(entry: KnownIssue, result: CellResult) -> tuple[str, ...]:
    """The buffers that an entry expects to overflow in a cell that it matches, and that hold."""
    one = in_cell(entry, result)
    return tuple(
        buffer
        for buffer in (one.buffer if one else ())
        if not any(found.buffer == buffer and _covers(entry, found) for found in result.overflow)
    )


def _grows(pair: object) -> bool:
    """Whether `[at worst, without chunks]` says that chunks make a buffer need more. What is no pair may be so."""
    match pair:
        case [int(worst), int(without)]:
            return worst > without
        case _:
            return True


def _of_a_pass(naked: CellResult, entries: Sequence[KnownIssue]) -> CellResult:
    if stable := [entry for entry in entries if not entry.flaky]:
        return _surprise(naked, stable, f"{stable[0].state}, but the cell passes")
    return replace(naked, verdict=Verdict.FLAKY, known=_links(entries)) if entries else naked


def _of_what_is_known(naked: CellResult, entries: Sequence[KnownIssue]) -> CellResult:
    """Everything bad is covered: by stable entries, or else by flaky ones too."""
    stable = [entry for entry in entries if not entry.flaky]
    if naked.state is State.OVERFLOW and (missing := [entry for entry in stable if gone(entry, naked)]):
        buffers = ", ".join(dict.fromkeys(buffer for entry in missing for buffer in gone(entry, naked)))
        return _surprise(naked, missing, f"overflow in {buffers}, which holds")
    flaky = bool(uncovered(naked, stable))
    links = _links(_holding(naked, entries if flaky else stable))
    return replace(naked, verdict=Verdict.FLAKY if flaky else Verdict.XFAIL, known=links)


def _surprise(naked: CellResult, entries: Sequence[KnownIssue], what: str) -> CellResult:
    links = _links(entries)
    return replace(naked, verdict=Verdict.XPASS, known=links, reason=f"{links} is known here as {what}")


def _still_speaks(entry: KnownIssue, result: CellResult) -> bool:
    """Whether somebody should hear that this entry has expired. A pass in a release behind its last one is its end."""
    if result.state is State.PASS:
        return isinstance(entry.until, date)
    return entry.state in {trouble.state for trouble in troubles(result)}


def _covers(entry: KnownIssue, overflow: Overflow) -> bool:
    return (not entry.buffer or overflow.buffer in entry.buffer) and (not entry.how or overflow.how in entry.how)


def _holding(result: CellResult, entries: Sequence[KnownIssue]) -> list[KnownIssue]:
    """The entries that explain something in this cell."""
    return [entry for entry in entries if any(explains(entry, trouble) for trouble in troubles(result))]


def _links(entries: Iterable[KnownIssue]) -> str:
    return " ".join(dict.fromkeys(entry.issue for entry in entries))


def _note(result: CellResult, text: str) -> CellResult:
    return replace(result, reason=f"{result.reason} ({text})" if result.reason else text)
