"""What the history of one cell says: since when it fails, how often by chance, how old its evidence is. Pure.

Evidence is never mixed: a line of results that is asked since when is of one kind.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from runner.history.records import Record, Revision, Shortage, distinct, oldest_first
from runner.model import AxisValue, Evidence, Fault, State, Verdict

CONFIDENCE = 0.95
VERSIONS = (
    "vllm",
    "flashinfer",
    "torch",
    "candidate",
    "image_digest",
    "base_digest",
    "gpu",
    "driver",
    "recipe_digest",
    "hashes",
    "cases_digest",
)
"""What may have changed between two results; the name of the machine is no cause."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """What counts as bad: any product trouble, an unexpected refusal too; or only an overflow of one buffer or in one
    way."""

    buffer: str = ""
    how: str = ""

    def bad(self, one: Record) -> bool | None:
        """Whether a result is; None where it says neither: it did not run, or died before it could show it."""
        if not (self.buffer or self.how):
            return one.verdict is Verdict.UNEXPECTED or self.of_state(one.state)
        if self.shown_by(one):
            return True
        return False if one.state in {State.PASS, State.OVERFLOW, State.FAIL} else None

    def shown_by(self, one: Record) -> list[Shortage]:
        """The overflows of a result that it speaks of."""
        return [it for it in one.overflow if self.buffer in ("", it.buffer) and self.how in ("", it.how)]

    @staticmethod
    def of_state(state: State) -> bool | None:
        if state is State.PASS:
            return False
        return True if state.fault is Fault.PRODUCT else None

    def __str__(self) -> str:
        if not (self.buffer or self.how):
            return "product trouble"
        return " ".join(word for word in ("overflow", self.buffer, self.how) if word)


@dataclass(frozen=True, kw_only=True, slots=True)
class Since:
    """How long a line of results has been as it is at its end."""

    bad: bool
    last: Record
    """The end of the line: the last result that says something."""
    first: Record
    """The first of those that are all alike up to the end."""
    before: Record | None
    """The last one that was the other way; None where the line begins as it ends."""
    between: tuple[Record, ...]
    """Results between those two that say neither."""

    @property
    def changed(self) -> dict[str, tuple[str, str]]:
        """What is different between `before` and `first`, by its name: then and now."""
        return changed(self.before, self.first) if self.before else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """How often a cell was bad at one revision: `bad` of `of` times, and an interval that holds the truth in 95 % of
    cases (Wilson)."""

    cell: str
    revision: Revision
    evidence: Evidence
    bad: int
    of: int
    newest: str

    @property
    def flaky(self) -> bool:
        return 0 < self.bad < self.of

    @property
    def rate(self) -> float:
        return self.bad / self.of

    @property
    def interval(self) -> tuple[float, float]:
        from scipy.stats import binomtest  # not before it is needed: it takes its time

        found = binomtest(self.bad, self.of).proportion_ci(CONFIDENCE, method="wilson")
        return float(found.low), float(found.high)


def changed(before: Record, now: Record) -> dict[str, tuple[str, str]]:
    """Versions and digests that differ, and what vllm chose otherwise."""
    pairs = {name: (before.environment.get(name, ""), now.environment.get(name, "")) for name in VERSIONS}
    pairs |= {
        f"resolved {name}": (str(before.resolved.get(name, "")), str(now.resolved.get(name, "")))
        for name in sorted({*before.resolved, *now.resolved})
    }
    return {name: (a, b) for name, (a, b) in pairs.items() if a != b}


def since(line: Sequence[Record], symptom: Symptom) -> Since | None:
    """Of results in order, the end of which is asked about; None where none of them says anything."""
    telling = [(one, word) for one in line if (word := symptom.bad(one)) is not None]
    if not telling:
        return None
    last, now = telling[-1]
    start = len(telling)
    while start and telling[start - 1][1] == now:
        start -= 1
    first, before = telling[start][0], telling[start - 1][0] if start else None
    between = line[line.index(before) + 1 : line.index(first)] if before else ()
    return Since(bad=now, last=last, first=first, before=before, between=tuple(between))


def alike(axes: dict[str, dict[str, AxisValue]], cell: dict[str, AxisValue]) -> list[str]:
    """The ids of the cells that differ from this one on the vllm axis alone, itself included."""
    rest = _but_release(cell)
    return [id_ for id_, values in axes.items() if _but_release(values) == rest]


def over_releases(records: Iterable[Record], releases: Sequence[str], evidence: Evidence) -> list[Record]:
    """The newest result of each release, in the order of the releases; a value that is none of them is left out."""
    newest = {one.release: one for one in oldest_first(records) if one.evidence is evidence}
    return [newest[release] for release in releases if release in newest]


def over_time(records: Iterable[Record], evidence: Evidence) -> list[Record]:
    """Each result once, oldest first."""
    return oldest_first(one for one in distinct(records) if one.evidence is evidence)


def rates(records: Iterable[Record], symptom: Symptom) -> list[Rate]:
    """For each cell, revision and evidence how often it was bad, the newest first.

    Only results that say what decided them count; each rerun of a result is another one (of which only the state is
    known, so that with a symptom reruns do not count).
    """
    words: dict[tuple[str, Revision, Evidence], list[bool]] = {}
    newest: dict[tuple[str, Revision, Evidence], str] = {}
    for one in oldest_first(distinct(records)):
        if not one.revision.known:
            continue
        key = (one.cell, one.revision, one.evidence)
        reruns = [Symptom.of_state(state) for state in one.reruns] if symptom == Symptom() else []
        if said := [word for word in (symptom.bad(one), *reruns) if word is not None]:
            words.setdefault(key, []).extend(said)
            newest[key] = one.ended_at
    found = [
        Rate(cell=cell, revision=revision, evidence=evidence, bad=sum(said), of=len(said), newest=newest[key])
        for key, said in words.items()
        for cell, revision, evidence in [key]
    ]
    return sorted(found, key=lambda rate: (rate.newest, rate.cell), reverse=True)


def newest_of_each(records: Iterable[Record]) -> list[Record]:
    """Of each cell and evidence the newest result, the oldest of them first."""
    return oldest_first({(one.cell, one.evidence): one for one in oldest_first(records)}.values())


def age_s(one: Record, now: datetime) -> float:
    """Seconds since a result was obtained; nan where it does not say when."""
    try:
        return (now - datetime.fromisoformat(one.ended_at)).total_seconds()
    except (ValueError, TypeError):
        return math.nan


def _but_release(axes: dict[str, AxisValue]) -> dict[str, AxisValue]:
    return {axis: value for axis, value in axes.items() if axis != "vllm"}
