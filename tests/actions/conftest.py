"""A repository on a GitHub that is played: this project as it lies here, with a small selection of cells."""

import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from runner.environments import venv
from tests.actions import api_played, python_played, releases_played
from tests.actions.events import MAIN
from tests.actions.harness import GitHub, Machine

PROJECT = Path(__file__).parents[2]
OWN = "someone/attnmatrix"
TIERS = ("pr", "nightly", "release")
PASSES = ("flash_attn", "sm90,sm100", "hybrid=on", "spec_k=0", "chunk=64", "load=solo")
ONE_PASSES = ("flash_attn", "sm100", "hybrid=on", "spec_k=0", "chunk=64", "load=solo")
OVERFLOWS = ("flashinfer", "sm90", "hybrid=on", "spec_k=3", "chunk=64", "load=solo")
EXCLUDED = ("flashinfer", "arch=cpu", "hybrid=on", "spec_k=0", "chunk=64", "load=solo")
"""Cells that a rule takes out: a run of them needs no vLLM."""
HOSTED = Machine("hosted", frozenset({"ubuntu-24.04"}), hosted=True)
SECRETS = {"RUNNERS_TOKEN": "s3cr3t-of-the-machines"}

Build = Callable[..., GitHub]


def files_of_the_project() -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, check=True, cwd=PROJECT)
    names = [name for name in done.stdout.decode().split("\0") if name and (PROJECT / name).is_file()]
    return [name for name in names if not name.startswith("tests/")]  # a third of all, and no job runs them


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Path]:
    """A copy of the project whose tiers select `cells`, in which nothing is known where `known` is false."""

    def make(name: str, cells: Sequence[str], *, known: bool = True) -> Path:
        place = tmp_path / "trees" / name
        for file in files_of_the_project():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / file, place / file)
        matrix = place / "matrix.yaml"
        text = matrix.read_text()
        for tier in TIERS:
            text, times = re.subn(rf"^  {tier}: .*$", f"  {tier}: {list(cells)}", text, flags=re.MULTILINE)
            assert times == 1
        if not known:
            text = text.partition("\nknown:\n")[0] + "\nknown: []\n"
        matrix.write_text(text)
        workflow = place / ".github/workflows/matrix.yml"
        short = workflow.read_text().replace("default: 30\n", "default: 0.02\n")  # minutes that a job may be queued
        assert short != workflow.read_text()
        workflow.write_text(short)
        return place

    return make


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    """Makes the GitHub of a story, with its API."""
    python_played.make(tmp_path / "bin")
    releases_played.make(tmp_path / "bin")
    stack = []

    def make(tree_of_main: Path, *machines: Machine, secrets: dict[str, str] | None = None, **named: str) -> GitHub:
        github = GitHub(
            folder=tmp_path / "github",
            repository=OWN,
            bin=tmp_path / "bin",
            environments=(PROJECT / venv.ROOT).resolve(),
            trees={(OWN, MAIN): tree_of_main},
            machines=[HOSTED, *machines],
            secrets=dict(SECRETS if secrets is None else secrets),  # a story may change its own
            vars={"GPU_MACHINES": archs("gpu-release", machines), "GPU_PR_MACHINES": archs("gpu-pr", machines)},
            rights={"maintainer": "write", "reader": "read"},
        )
        github.folder.mkdir()
        for machine in machines:
            machine.hook = hook(tmp_path, machine, github.folder / "machines" / machine.name / "_work")
        server = api_played.served(github)
        github.api_url = server.__enter__()
        stack.append(server)
        return github

    yield make
    for server in stack:
        server.__exit__(None, None, None)


RUNS = {
    "gpu-pr": ("matrix-gpu.yml@refs/heads/main",),
    "gpu-release": ("matrix-nightly.yml@refs/heads/main", "release-signoff.yml@refs/heads/main"),
}
"""The workflows that a machine of each kind takes, as docs/self-hosted.md says."""


def archs(label: str, machines: Sequence[Machine]) -> str:
    return ",".join(
        sorted({one for machine in machines if label in machine.labels for one in machine.labels if "sm" in one})
    )


def gpu_machine(arch: str, *, online: bool = True, label: str = "gpu-release", **env: str) -> Machine:
    return Machine(f"lab-{arch}", frozenset({"self-hosted", label, arch}), online=online, env=env)


def hook(folder: Path, machine: Machine, work: Path) -> Path:
    """The script of docs/self-hosted.md, for this repository and machine, with the project that is tested."""
    page = (PROJECT / "docs/self-hosted.md").read_text()
    (script,) = re.findall(r"^ *```bash\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL)
    script = textwrap.dedent(script)
    python = folder / "python"
    # -I would find the project that is installed, which is not the one that is tested
    python.write_text(f'#!/bin/bash\n[[ "$1" == -I ]] && PYTHONPATH={PROJECT} exec {sys.executable} "${{@:2}}"\n')
    python.chmod(0o755)
    (label,) = machine.labels & RUNS.keys()
    for one in RUNS["gpu-release"]:
        assert one.split("@")[0] in script, "the comment says what is to stand there"
    workflows = " ".join(RUNS[label])
    for old, new in (
        ("/opt/attnmatrix/bin/python", str(python)),
        ("OWNER/NAME", OWN),
        (f"({RUNS['gpu-pr'][0]})", f"({workflows})"),
        ("/srv/actions/_work", str(work)),
    ):
        assert old in script
        script = script.replace(old, new)
    path = folder / f"admit-{machine.name}.sh"
    path.write_text(script)
    return path
