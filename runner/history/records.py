"""What the history keeps of one result, and when two results were obtained at the same revision."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.model import AxisValue, Evidence, State, Verdict
from runner.results import made_of

_CANDIDATE = re.compile(r"\b([0-9a-f]{16}) over \S+$")
"""The digest in what `str(Candidate)` says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Revision:
    """Everything that decides a result, but for chance: results of one cell that differ at the same one are a flake."""

    vllm: str
    flashinfer: str
    torch: str
    candidate: str
    """Digest of what a candidate is made of; empty for a release."""
    recipe: str
    """Digest of what the environment was built from; where there is none, as on a device, the image's id."""
    cases: str
    loads: str
    """Digest of what the matrix says of its loads."""
    seed: int

    @property
    def known(self) -> bool:
        """Whether the result says what decided it: one from before the digests were recorded does not."""
        return bool(self.cases)


def revision(environment: Mapping[str, str], *, loads: str = "", seed: int = 0) -> Revision:
    """Of a result, from its `environment`; the GPU, its driver and the machine are no part of it."""
    candidate = environment.get("candidate", "")
    found = _CANDIDATE.search(candidate)
    return Revision(
        vllm=environment.get("vllm", ""),
        flashinfer=environment.get("flashinfer", ""),
        torch=environment.get("torch", ""),
        candidate=found[1] if found else candidate,
        recipe=made_of(environment),
        cases=environment.get("cases_digest", ""),
        loads=loads,
        seed=seed,
    )


@dataclass(frozen=True, slots=True)
class Shortage:
    """An overflow without its batch: entries that the buffer needs and has, and how that showed."""

    buffer: str
    how: str
    required: int
    allocated: int

    def __str__(self) -> str:
        return f"{self.buffer} {self.how}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One result as the history keeps it; fields as in results.json where they have its names."""

    run_id: str
    cell: str
    axes: Mapping[str, AxisValue]
    state: State
    verdict: Verdict
    evidence: Evidence
    duration_s: float
    ended_at: str
    """UTC, ISO 8601; of a run from before results said it, when the run began."""
    environment: Mapping[str, str]
    resolved: Mapping[str, Any]
    overflow: tuple[Shortage, ...]
    reason: str
    reruns: tuple[State, ...]
    loads: str
    seed: int

    @property
    def release(self) -> str:
        """The value of the vllm axis: a release or the name of a candidate."""
        return str(self.axes.get("vllm", ""))

    @property
    def revision(self) -> Revision:
        return revision(self.environment, loads=self.loads, seed=self.seed)

    @property
    def found(self) -> str:
        """What was found, in a few words: `overflow: paged_kv_indptr raised, xqa_draft_mask short`."""
        if self.verdict is Verdict.UNEXPECTED:
            return f"{self.verdict.value}: {self.reason}"
        overflows = ", ".join(map(str, self.overflow))
        return f"{self.state.value}: {overflows}" if overflows else self.state.value


def distinct(records: Iterable[Record]) -> list[Record]:
    """Each result once, though several runs have it: a merged run has those of others. The earliest run's is kept."""
    kept: dict[tuple[object, ...], Record] = {}
    for one in sorted(records, key=lambda one: one.run_id):
        machine = one.environment.get("machine", "")
        kept.setdefault((one.cell, one.ended_at, one.evidence, one.state, one.duration_s, machine), one)
    return list(kept.values())


def oldest_first(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda one: (one.ended_at, one.run_id))


def evidences(records: Sequence[Record]) -> list[Evidence]:
    """The kinds that occur, in the order of the contract."""
    there = {one.evidence for one in records}
    return [kind for kind in Evidence if kind in there]
