"""What is wrong in one cell: one finding for each cause, with the cases that ended at it."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from runner.model import CaseResult, Cause, CellResult, How, Overflow, State, Verdict
from runner.outcome import BADNESS

DEATHS = frozenset({State.CRASH, State.OOM, State.TIMEOUT})
OF_THE_CELL = frozenset({State.SUBSTITUTED, State.MISSING, State.INFRA, State.REFUSED})
"""States that cases take from what they share, such as the deployment: alike in words, they have one cause."""

Key = tuple[object, ...]
Told = tuple[CaseResult, Overflow | None]
"""A case, and the one of its overflows that it tells here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One bad thing in one cell."""

    result: CellResult
    state: State
    case: str
    """The case that tells it; empty where it is told by the cell alone."""
    message: str
    overflow: Overflow | None = None
    """The one with the smallest batch."""
    widest: Overflow | None = None
    """The one that is short of most entries."""
    cause: Cause | None = None
    also: tuple[str, ...] = ()
    """The cell's other cases that ended at the same, or after its process died: they judged nothing else."""

    @property
    def verdict(self) -> Verdict:
        """Of the finding: where nothing is expected of its cell, its own state speaks, not the worst in the cell."""
        if self.result.verdict in {Verdict.XFAIL, Verdict.FLAKY, Verdict.XPASS, Verdict.UNEXPECTED}:
            return self.result.verdict
        return Verdict(self.state.value)

    @property
    def expected(self) -> bool:
        return self.verdict in {Verdict.XFAIL, Verdict.FLAKY}


def findings(result: CellResult) -> tuple[Finding, ...]:
    """Each overflow, each cause in vLLM, each other bad case; the cell itself where no case says it."""
    if result.verdict is Verdict.XPASS:
        return (Finding(result=result, state=result.state, case="", message=result.reason),)
    unexpected = result.verdict is Verdict.UNEXPECTED
    if not (result.state.bad or unexpected):
        return ()
    bad = [case for case in result.cases if case.state.bad or (unexpected and case.state is State.REFUSED)]
    # Where the process died: also of an instruction that this CPU does not have, which is the machine's trouble.
    dead = result.state in DEATHS or any(case.state is not State.NOT_RUN for case in bad)
    after = tuple(case.name for case in bad if dead and case.state is State.NOT_RUN)
    found = list(_told(result, [case for case in bad if case.name not in after]))
    if result.state not in {finding.state for finding in found}:
        found.append(Finding(result=result, state=result.state, case="", message=result.reason))
    tellers = {finding.case for finding in found}
    # What did not run because the process had died is a consequence, not a finding.
    return tuple(
        replace(
            finding,
            also=tuple(name for name in dict.fromkeys(finding.also) if name not in tellers)
            + (after if finding.state is result.state else ()),
        )
        for finding in found
    )


def _told(result: CellResult, cases: Sequence[CaseResult]) -> Iterator[Finding]:
    together: dict[Key, list[Told]] = defaultdict(list)
    overran = [case for case in cases if case.state is State.OVERFLOW and case.overflow]
    lines = {place(case.cause): _overflow_key(_shown(case)) for case in overran if case.cause}
    for case in cases:
        # A case may have failed otherwise, beside the overflows that it found.
        for overflow in (*case.overflow, *(() if case in overran else (None,))):
            key = _overflow_key(overflow) if overflow else _key(case, result)
            together[lines.get(key, key)].append((case, overflow))
    for told in together.values():
        case, overflow = min(told, key=_first)
        others = [other for other, _ in told if other.name != case.name]
        overflows = [each for _, each in told if each]
        yield Finding(
            result=result,
            state=State.OVERFLOW if overflow else case.state,
            case=case.name,
            message=result.reason if result.verdict is Verdict.UNEXPECTED else case.message or result.reason,
            overflow=overflow,
            widest=max(overflows, key=lambda each: each.required - each.allocated, default=None),
            cause=case.cause if overflow is None or (case in overran and overflow is _shown(case)) else None,
            also=tuple(other.name for other in others),
        )


def _key(case: CaseResult, result: CellResult) -> Key:
    """What cases without an overflow share if one cause ended them."""
    if case.cause:
        return place(case.cause)
    if case.state in OF_THE_CELL:
        return case.state, alike(case.message or result.reason)
    return case.state, case.name


def place(cause: Cause) -> Key:
    """vLLM's line and its words."""
    return cause.exception, cause.file, cause.line, cause.function, alike(cause.words)


def alike(words: str) -> str:
    """The words without their numbers, so that a full disk is one cause whatever is left of it."""
    return re.sub(r"#(?:\s*,\s*#)+", "#", re.sub(r"\b0x[0-9a-fA-F]+|\d+(?:\.\d+)?", "#", words))


def _overflow_key(overflow: Overflow) -> Key:
    return overflow.buffer, overflow.how


def _shown(case: CaseResult) -> Overflow:
    """The overflow that the case's exception came from."""
    return next((one for one in case.overflow if one.how is How.RAISED), case.overflow[0])


def _first(told: Told) -> tuple[bool, int, tuple[int, int], int]:
    """The case that tells a cause best: with an overflow, of the worst state, of the least batch, named after it."""
    case, overflow = told
    named = set(case.name.split("_")) & set(overflow.buffer.split("_")) if overflow else ()
    return overflow is None, BADNESS[case.state], effort(overflow), -len(named)


def effort(overflow: Overflow | None) -> tuple[int, int]:
    """How much a reader has to take in to follow it."""
    return (len(overflow.batch.query_lens), sum(overflow.batch.query_lens)) if overflow else (0, 0)
