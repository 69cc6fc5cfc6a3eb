"""From what a workflow was asked (inputs, variables) to jobs, and from a job to a run."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner import candidates, select
from runner.ci import api, jobs
from runner.ci.api import Api, Unavailable
from runner.ci.jobs import Asked, Job, Side
from runner.environments import venv
from runner.environments.recipe import digest, recipe_for
from runner.errors import UsageError
from runner.machine import CUDA_PYTHON
from runner.matrix import Matrix
from runner.nearest import hint, quoted
from runner.options import EngineName, Obtained, RunOptions, default_matrix

RUNNERS_TOKEN = "RUNNERS_TOKEN"  # noqa: S105 - the name of a variable
"""Names a token that may list the repository's self-hosted runners; without one, all machines count as online."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A matrix, with a candidate where a commit is asked for, and what is to be judged of it."""

    chart: Matrix
    asked: Asked


def names(text: str) -> tuple[str, ...]:
    """`sm90, sm100` as names."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def asked(
    *,
    chart_of: Callable[[list[str]], Matrix],
    tier: str,
    filters: tuple[str, ...],
    vllm: str,
    commit: str,
    checkout: Path,
    machines: Mapping[str, int],
    pool: str = jobs.POOLS[0],
) -> Question:
    """UsageError where release and commit are both given, or one of them is none."""
    if vllm and commit:
        raise UsageError("a release and a commit of vLLM are asked for: name one of them")
    if commit and not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise UsageError(f"{quoted(commit)} is no commit: give all 40 digits of its hash (git rev-parse prints them)")
    chart = chart_of([f"commit_{commit[:12]}={checkout}"] if commit else [])
    if vllm and vllm not in map(str, chart.axes["vllm"]):
        raise UsageError(f"{quoted(vllm)} is no release of the matrix{hint(vllm, chart.axes['vllm'])}")
    texts = (*filters, f"vllm={vllm}") if vllm else filters
    return Question(
        chart=chart,
        asked=Asked(
            tier=tier, filters=texts, candidates=candidates.settled(chart), machines=machines, pool=_pool(pool)
        ),
    )


def machines(text: str) -> dict[str, int]:
    """`sm90:2,sm100` as archs, each with the number of jobs that its cells are cut into."""
    found = {}
    for one in names(text):
        arch, _, parts = one.partition(":")
        if parts and not re.fullmatch(r"[1-9][0-9]?", parts):
            raise UsageError(f"{quoted(one)}: after the colon stands the number of jobs, 1 to 99")
        found[arch] = int(parts or 1)
    return found


def _pool(name: str) -> str:
    if name not in jobs.POOLS:
        raise UsageError(f"{quoted(name)} is no label of machines with GPUs: {', '.join(jobs.POOLS)}")
    return name


def with_machines(asked: Asked, say: Callable[[str], None]) -> Asked:
    """With the archs that no machine serves now, and those whose machines are busy; unchanged where we may not ask."""
    if not asked.machines:
        return asked
    if not os.environ.get(RUNNERS_TOKEN):
        say(f"{RUNNERS_TOKEN} is not set: whether machines are online is not asked, and each counts as online")
        return asked
    try:
        found = Api.here(RUNNERS_TOKEN).machines()
    except Unavailable as error:
        say(f"{error}: each machine counts as online")
        return asked
    labels = jobs.labels(asked.pool)
    return replace(
        asked,
        offline=api.offline(asked.machines, found, labels),
        busy=api.busy(asked.machines, found, labels),
    )


def outputs(made: Sequence[Job]) -> dict[str, str]:
    """What a workflow reads of a plan: a matrix for each side as JSON, and the names of the device jobs by comma."""
    github = jobs.as_github(made)
    return {
        "hosted": json.dumps(github["hosted"]),
        "device": json.dumps(github["device"]),
        "device_names": ",".join(one["name"] for one in github["device"]["include"]),
    }


def options(filters: Sequence[str], tier: str | None, candidates: tuple[str, ...], engine: EngineName) -> RunOptions:
    """What a run is asked for by the words of a workflow, where an empty one is none."""
    return RunOptions(
        matrix=default_matrix(),
        filters=tuple(filters),
        tier=tier or None,
        candidates=candidates,
        engine=engine,
    )


def options_of(job: Job) -> RunOptions:
    """A hosted machine is thrown away after its job, so its cells need no container; one with a GPU lives on."""
    named = job.side is Side.HOSTED or CUDA_PYTHON in os.environ
    on_device = job.side is Side.DEVICE
    return replace(
        options(job.filters, job.tier, job.candidates, EngineName.LOCAL if named else EngineName.DOCKER),
        shard=select.parse_shard(job.shard) if job.shard else None,
        job=job.name,
        evidence=Obtained.DEVICE if on_device else Obtained.EMULATED,
        require_device=on_device,
    )


def run(asked: RunOptions, matrix: Path | None, out: Path | None, limit_s: float | None, verbosity: int) -> int:
    """Run it; the exit code is a run's."""
    from runner import session

    matrix = matrix or asked.matrix
    return session.run(replace(asked, matrix=matrix, out=out, limit_s=limit_s, verbosity=verbosity))


def cache_key(chart: Matrix, asked: RunOptions) -> str:
    """Of the environments that the cells need: the same sources, Python and way of building give the same key.

    A venv belongs to the Python that it was made with, to the last digit, and is not taken by another.
    """
    cells = select.select(chart, filters=asked.filters, tier_name=asked.tier, shard=asked.shard)
    releases = sorted({str(cell.axes["vllm"]) for cell in cells})
    made_of = digest(venv.FORMAT, sys.version, *(recipe_for(chart, release).digest for release in releases))
    python = ".".join(map(str, sys.version_info[:3]))
    return f"attnmatrix-py{python}-{made_of}"
