"""A repository with a machine for pull requests, and what a stranger may want of it."""

from collections.abc import Callable
from pathlib import Path

from tests.actions.conftest import EXCLUDED, OWN, Build, gpu_machine
from tests.actions.events import HEAD, MAIN, MERGED
from tests.actions.harness import GitHub, Run

BESIDE = frozenset({"gpu / hosted (hosted)", "gpu / wait", "gpu / gate", "status", "report"})
"""Jobs of matrix-gpu.yml that say nothing of who reaches a machine."""
HOSTILE = "$(touch PWNED) `touch PWNED` '; touch PWNED; \" ${{ github.token }} ::set-env name=X::y\n::error::pwned"
Tree = Callable[..., Path]


def told(run: Run) -> dict[str, str | None]:
    return {job.name: job.conclusion for job in run.all_jobs}


def nothing_ran(github: GitHub, run: Run, name: str = "steal") -> None:
    job = run.job(name)
    assert job.conclusion == "failure"
    assert job.seen_by_steps == [], "no step of it ran"
    assert not list(github.folder.rglob("PWNED"))
    work = job.machine_folder
    assert work.name == "_work"
    assert list(work.iterdir()) == [], "something is left on the machine"


def world(tree: Tree, build: Build, cells: tuple[str, ...] = EXCLUDED, **env: str) -> GitHub:
    """A machine for pull requests, and pull request 7 at HEAD."""
    github = build(tree("main", cells), gpu_machine("sm90", label="gpu-pr", **env))
    github.trees[OWN, HEAD] = github.trees[OWN, MERGED] = github.trees[OWN, MAIN]
    github.heads[7] = HEAD
    return github
