"""Puts findings that look alike together, so that 432 cells with one cause read as one."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runner.axes import RELEASES
from runner.model import Cause, CellResult, How, Overflow, State, Verdict
from runner.outcome import BADNESS, VERDICT_ORDER
from runner.reports.findings import OF_THE_CELL, Finding, Key, alike, effort, findings


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Findings with one cause: vLLM's line and words, or a backend's buffer and how, or else its case.

    The example has the smallest batch.
    """

    verdict: Verdict
    state: State
    backends: tuple[str, ...]
    buffer: str
    how: How | None
    cases: tuple[str, ...]
    """Those that tell it, the example's first, and then those that ended at it and judged nothing else."""
    known: str
    example: Finding
    cells: tuple[CellResult, ...]
    widest: Overflow | None = None
    """The overflow of the group that is short of most entries."""
    causes: tuple[Cause, ...] = ()
    """One for each line: it moves from release to release."""
    unjudged: tuple[str, ...] = ()
    """The cases that ended at it and judged nothing else, in at least one cell."""
    times_told: int = 0
    times_unjudged: int = 0
    """How many cases tell it, and how many ended at it and judged nothing else, in all cells together."""

    @property
    def expected(self) -> bool:
        return self.verdict in {Verdict.XFAIL, Verdict.FLAKY}


def groups(results: Sequence[CellResult]) -> tuple[Group, ...]:
    """Unexpected ones first, then worst first, then largest first."""
    found = [finding for result in results for finding in findings(result)]
    places = _Places(found)
    # What vLLM raised because of a buffer has the same cause in cells where no buffer was seen.
    buffers = {places.of(one): _key(one, places) for one in reversed(found) if one.cause and one.overflow}
    together: dict[Key, list[Finding]] = defaultdict(list)
    for one in found:
        key = _key(one, places)
        together[buffers.get(places.of(one), key) if one.cause and not one.overflow else key].append(one)
    return tuple(sorted(map(_group, together.values()), key=rank))


class _Places:
    """Where in vLLM findings come from.

    A line moves from release to release: it counts by its place among those lines of its release that say the same.
    """

    def __init__(self, found: Iterable[Finding]) -> None:
        lines = defaultdict[Key, set[int]](set)
        for one in found:
            if one.cause:
                lines[self._said(one, one.cause)].add(one.cause.line)
        self._lines = {said: sorted(each) for said, each in lines.items()}

    def of(self, one: Finding) -> Key:
        if not one.cause:
            return ()
        key = self._said(one, one.cause)
        known = (one.verdict if one.expected else None, one.result.known)
        return *known, *key[1:], self._lines[key].index(one.cause.line)

    def _said(self, one: Finding, cause: Cause) -> Key:
        words = alike(cause.words)
        return one.result.axes.get(RELEASES), cause.exception, cause.file, cause.function, words


def _key(finding: Finding, places: _Places) -> Key:
    overflow, backend = finding.overflow, finding.result.axes.get("backend")
    head = finding.verdict, finding.state, finding.result.known
    if overflow:
        return *head, backend, overflow.buffer, overflow.how
    if finding.cause:
        return *head, *places.of(finding)
    # Without a case only the words tell causes apart: a full disk is not a missing image.
    by_words = not finding.case or finding.state in OF_THE_CELL
    return *head, backend, alike(finding.message) if by_words else finding.case


def _group(found: list[Finding]) -> Group:
    example = min(found, key=lambda one: (one.overflow is None, VERDICT_ORDER[one.verdict], effort(one.overflow)))
    unjudged = dict.fromkeys(name for one in found for name in one.also)
    return Group(
        verdict=example.verdict,
        state=example.state,
        backends=tuple(dict.fromkeys(str(one.result.axes.get("backend", "")) for one in (example, *found))),
        buffer=example.overflow.buffer if example.overflow else "",
        how=example.overflow.how if example.overflow else None,
        cases=tuple(dict.fromkeys([one.case for one in (example, *found) if one.case] + list(unjudged))),
        known=example.result.known,
        example=example,
        cells=tuple({one.result.id: one.result for one in found}.values()),
        widest=max(
            (one.widest for one in found if one.widest),
            key=lambda overflow: overflow.required - overflow.allocated,
            default=None,
        ),
        causes=tuple({(c.file, c.line): c for one in (*reversed(found), example) if (c := one.cause)}.values())[::-1],
        unjudged=tuple(unjudged),
        times_told=sum(bool(one.case) for one in found),
        times_unjudged=sum(len(one.also) for one in found),
    )


def rank(group: Group) -> tuple[bool, int, int, int, str, str]:
    """The order in which groups are shown: what is unexpected, bad and frequent comes first."""
    return (
        group.expected,
        VERDICT_ORDER[group.verdict],
        BADNESS[group.state],
        -len(group.cells),
        group.backends[0],
        group.buffer + "".join(group.cases[:1]),
    )
