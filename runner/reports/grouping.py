"""Puts failures that look alike together, so that 432 cells with one cause read as one finding."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runner.model import CellResult, How, Overflow, State, Verdict
from runner.outcome import BADNESS, VERDICT_ORDER

DEATHS = frozenset({State.CRASH, State.OOM, State.TIMEOUT})


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One bad thing in one cell."""

    result: CellResult
    state: State
    case: str
    message: str
    overflow: Overflow | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Findings alike in verdict, state and backend, and in buffer and how, or else in case.

    The example has the smallest batch.
    """

    verdict: Verdict
    state: State
    backend: str
    buffer: str
    how: How | None
    cases: tuple[str, ...]
    """The example's first."""
    known: str
    example: Finding
    cells: tuple[CellResult, ...]
    widest: Overflow | None = None
    """The overflow of the group that is short of most entries."""

    @property
    def expected(self) -> bool:
        return self.verdict in {Verdict.XFAIL, Verdict.FLAKY}


def groups(results: Sequence[CellResult]) -> tuple[Group, ...]:
    """Unexpected ones first, then worst first, then largest first."""
    together: dict[tuple[str | None, ...], list[Finding]] = defaultdict(list)
    for result in results:
        for finding in findings(result):
            together[_key(finding)].append(finding)
    return tuple(sorted(map(_group, together.values()), key=rank))


def findings(result: CellResult) -> Iterator[Finding]:
    """What is wrong in a cell: each overflow, each other bad case; the cell itself where no case says it."""
    if result.verdict is Verdict.XPASS:
        yield Finding(result=result, state=result.state, case="", message=result.reason)
        return
    if not result.state.bad:
        return
    told = False
    for case in result.cases:
        # What did not run because the process had died is a consequence, not a finding.
        if not case.state.bad or (case.state is State.NOT_RUN and result.state in DEATHS):
            continue
        told = told or case.state is result.state
        for overflow in case.overflow or (None,):
            yield Finding(
                result=result,
                state=case.state,
                case=case.name,
                message=case.message or result.reason,
                overflow=overflow,
            )
    if not told:
        yield Finding(result=result, state=result.state, case="", message=result.reason)


def _key(finding: Finding) -> tuple[str | None, ...]:
    overflow, result = finding.overflow, finding.result
    # Without a case only the words tell causes apart: a full disk is not a missing image, whatever the numbers in it.
    words = "" if finding.case else re.sub(r"\d+(\.\d+)?", "#", finding.message)
    return (
        result.verdict,
        finding.state,
        str(result.axes.get("backend", "")),
        overflow.buffer if overflow else "",
        overflow.how if overflow else None,
        "" if overflow else finding.case,  # the same overflow shows in several cases of a cell
        result.known,
        words,
    )


def _group(found: list[Finding]) -> Group:
    example = min(found, key=_effort)
    cells = {finding.result.id: finding.result for finding in found}
    return Group(
        verdict=example.result.verdict,
        state=example.state,
        backend=str(example.result.axes.get("backend", "")),
        buffer=example.overflow.buffer if example.overflow else "",
        how=example.overflow.how if example.overflow else None,
        cases=tuple(dict.fromkeys(f.case for f in (example, *found) if f.case)),
        known=example.result.known,
        example=example,
        cells=tuple(cells.values()),
        widest=max(
            (finding.overflow for finding in found if finding.overflow),
            key=lambda overflow: overflow.required - overflow.allocated,
            default=None,
        ),
    )


def _effort(finding: Finding) -> tuple[int, int]:
    """How much a reader has to take in to follow the example."""
    if not finding.overflow:
        return 0, 0
    return len(finding.overflow.batch.query_lens), sum(finding.overflow.batch.query_lens)


def rank(group: Group) -> tuple[bool, int, int, int, str, str]:
    """The order in which groups are shown: what is unexpected, bad and frequent comes first."""
    return (
        group.expected,
        VERDICT_ORDER[group.verdict],
        BADNESS[group.state],
        -len(group.cells),
        group.backend,
        group.buffer + "".join(group.cases[:1]),
    )
