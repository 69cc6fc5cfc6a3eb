"""The jobs that a selection of cells becomes in GitHub Actions, and the JSON by which workflows pass them on.

Sources: docs.github.com, "Running variations of jobs in a workflow" (a matrix of at most 256 jobs, `include`),
"Choosing the runner for a job" (`runs-on` takes a list of labels, all of which a machine must have).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config

from runner import plan as planning
from runner import select
from runner.errors import NothingSelected, UsageError
from runner.matrix import Matrix
from runner.model import Evidence
from runner.nearest import hint, quoted
from runner.plan import Plan

MOST_JOBS = 32
"""Of one workflow run; GitHub's own limit is 256."""
CELLS_PER_JOB = 2_000
"""Of a hosted job: minutes for metadata, longer where attention is computed; each installs an environment first."""
HOSTED = ("ubuntu-24.04",)
POOLS = ("gpu-release", "gpu-pr")
"""Machines that never run a stranger's code, and those that do: what is signed comes only from the first."""


def labels(pool: str) -> tuple[str, str]:
    """A machine with a GPU has these labels and the name of its arch, such as sm90."""
    return "self-hosted", pool


class Side(StrEnum):
    """Where results come from; their evidence is never mixed up."""

    DEVICE = "device"
    HOSTED = "hosted"

    def takes(self, evidence: Evidence) -> bool:
        """Whether such a job can have obtained this evidence."""
        return (evidence is Evidence.DEVICE) == (self is Side.DEVICE)


Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.]{0,62}$")]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One job of a workflow: which machine, and what it is to run there."""

    name: Name
    side: Side
    runs_on: tuple[str, ...]
    tier: str = ""
    filters: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    shard: str = ""
    cells: int = 0
    """To run; those that a rule excludes are not counted."""
    offline: str = ""
    """Why it is not started: its cells are `skipped`. Empty where it is."""
    busy: str = ""
    """The machines that it waits for, where all of them ran other jobs when it was planned."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What is to be judged, and with which machines."""

    tier: str = ""
    filters: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    machines: Mapping[str, int] = field(default_factory=dict)
    """Archs for which a machine is registered, and in how many jobs the cells of each are cut."""
    pool: str = POOLS[0]
    """The label of those machines."""
    offline: Mapping[str, str] = field(default_factory=dict)
    """By arch, why its machine is not asked now."""
    busy: Mapping[str, str] = field(default_factory=dict)
    """By arch, the machines that run other jobs now, where all do."""


JOB = TypeAdapter(Job)
JOBS = TypeAdapter(tuple[Job, ...])


def make(chart: Matrix, asked: Asked) -> tuple[tuple[Job, Plan], ...]:
    """The jobs with the plan of each: one for each machine, then hosted ones, each with an equal part of all cells."""
    _know(asked.machines, chart)
    found = [made for arch, parts in asked.machines.items() for made in _device(chart, asked, arch, parts)]
    found += _hosted(chart, asked)
    if len(found) > MOST_JOBS:
        raise UsageError(f"that is {len(found)} jobs, and more than {MOST_JOBS} are not made: ask for fewer cells")
    return tuple(found)


def _know(machines: Iterable[str], chart: Matrix) -> None:
    archs = [str(arch) for arch in chart.axes["arch"] if arch != "cpu"]
    for one in machines:
        if one not in archs:
            raise UsageError(f"{quoted(one)} is no arch that a machine could have{hint(one, archs)}")


def _device(chart: Matrix, asked: Asked, arch: str, parts: int) -> list[tuple[Job, Plan]]:
    """One for each part of the cells, as far as there are cells: whichever machine of the arch is free takes it."""
    found = []
    filters = (*asked.filters, f"arch={arch}")
    for index in range(1, parts + 1):
        shard = f"{index}/{parts}" if parts > 1 else ""
        try:
            cells = select.select(
                chart,
                filters=filters,
                tier_name=asked.tier or None,
                shard=select.parse_shard(shard) if shard else None,
            )
        except NothingSelected:
            continue
        plan = planning.make_plan((one for one in cells if not one.unsupported), device_archs=frozenset({arch}))
        if not plan.planned:
            continue
        job = Job(
            name=f"{arch}_{index}" if shard else arch,
            side=Side.DEVICE,
            runs_on=(*labels(asked.pool), arch),
            tier=asked.tier,
            filters=filters,
            candidates=asked.candidates,
            shard=shard,
            cells=_to_run(plan),
            offline=asked.offline.get(arch, ""),
            busy=asked.busy.get(arch, ""),
        )
        found.append((job, plan))
    return found


def _hosted(chart: Matrix, asked: Asked) -> list[tuple[Job, Plan]]:
    cells = select.select(chart, filters=asked.filters, tier_name=asked.tier or None)
    total = math.ceil(sum(not one.unsupported for one in cells) / CELLS_PER_JOB) or 1
    base = Job(
        name="hosted", side=Side.HOSTED, runs_on=HOSTED, tier=asked.tier, filters=asked.filters,
        candidates=asked.candidates,
    )  # fmt: skip
    found = []
    for index in range(1, total + 1):
        shard = f"{index}/{total}" if total > 1 else ""
        part = select.select(
            chart,
            filters=asked.filters,
            tier_name=asked.tier or None,
            shard=select.parse_shard(shard) if shard else None,
        )
        plan = planning.make_plan(part, device_archs=frozenset())
        name = f"hosted_{index}" if shard else "hosted"
        found.append((replace(base, name=name, shard=shard, cells=_to_run(plan)), plan))
    return found


def _to_run(plan: Plan) -> int:
    return len(plan.planned) - len(plan.unsupported)


def as_github(jobs: Sequence[Job]) -> dict[str, Any]:
    """What a workflow takes with fromJSON: for each side a matrix, whose `include` may be empty; and what is left out.

    Which machines a device job asks for, the workflow itself says: it takes only the arch from here.

    A job whose matrix is empty fails in Actions: ask for `include[0]` first.
    """
    sides = {
        side.value: {
            "include": [
                {"name": job.name, "arch": job.runs_on[-1], "job": to_json(job)}
                for job in jobs
                if job.side is side and not job.offline
            ]
        }
        for side in Side
    }
    return {**sides, "offline": [{"name": job.name, "because": job.offline} for job in jobs if job.offline]}


def to_json(job: Job) -> str:
    return JOB.dump_json(job, exclude_defaults=True).decode()


def from_json(text: str) -> Job:
    """Read a job back; UsageError where it is none."""
    try:
        return JOB.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise UsageError(f"--job is not a job of a plan: {where}: {first['msg']}") from None
