"""The cases without the runner, as their author runs them: `pytest cases --cell ID` inside an environment."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]

CHOSEN = [
    word for each in ("flashinfer", "solo", "c64", "k3", "hybrid_on", "sm80,sm90,sm100") for word in ("--filter", each)
]
ALWAYS = {
    "test_paged_kv_buffers_hold_the_worst_batches",
    "test_batches_that_vllm_makes_up_fit_and_are_right",
    "test_random_batches_fit_and_are_right",
}
"""What is too short shows by the worst batches, by a long warm-up step, and by the random batches of seed 0."""
RED = {
    "sm80": ALWAYS,
    "sm90": {*ALWAYS, "test_draft_mask_has_a_row_for_each_window"},
    "sm100": {*ALWAYS, "test_prefill_lengths_have_an_entry_for_each_row"},
}


def runner(*words: str) -> str:
    command = [sys.executable, "-m", "runner", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=PROJECT).stdout


@pytest.fixture(scope="module")
def python() -> Path:
    """The environment's own Python; built if it is not there yet."""
    return Path(runner("env", "build", "--engine", "local", "0.32.0").strip())


def pytest_by_hand(python: Path, *words: str) -> tuple[int, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # where `runner` is, which knows the cells
    command = [str(python), "-m", "pytest", "cases", "-q", "--tb=no", "-p", "no:cacheprovider", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=PROJECT, env={**os.environ, "PATH": path}
    )
    return done.returncode, done.stdout + done.stderr


def red(output: str) -> dict[str, set[str]]:
    """The failed cases by arch."""
    found: dict[str, set[str]] = {}
    for case, arch in re.findall(r"^FAILED \S+::(\w+)\[\S*-(sm\d+)-", output, re.MULTILINE):
        found.setdefault(arch, set()).add(case)
    return found


def test_one_cell_by_its_id(python: Path) -> None:
    code, output = pytest_by_hand(python, "--cell", "0.32.0-flashinfer-sm90-hybrid_on-k3-c64-solo")
    assert code == 1, output
    assert red(output) == {"sm90": RED["sm90"]}


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadgroup"), ("-n", "2")])
def test_a_list_of_cells_in_one_process_or_two(python: Path, tmp_path: Path, workers: tuple[str, ...]) -> None:
    """Several archs share a process here: what vLLM cached about one must not reach the next."""
    cells = tmp_path / "cells.json"
    cells.write_text(runner("list", "--json", *CHOSEN))
    code, output = pytest_by_hand(python, f"--cells={cells}", *workers)
    assert code == 1, output
    assert red(output) == RED


def test_an_unknown_cell_is_a_usage_error(python: Path) -> None:
    code, output = pytest_by_hand(python, "--cell", "nope")
    assert code == 4
    assert "no such cell: nope" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("version", ["0.9.2", "0.99.0"])
def test_a_release_that_the_cases_do_not_know_gives_one_message_and_no_verdict(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Stands for it: a package of that name and version that has nothing of what the cases use."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    (tmp_path / "vllm" / "version.py").write_text(f"__version__ = {version!r}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code, output = pytest_by_hand(python)
    assert code == 1
    (said,) = output.strip().splitlines()
    about = "is older" if version == "0.9.2" else "is newer"
    assert said.startswith(f"vLLM {version} {about} than the releases that the cases serve, 0.10.0 to 0.33.0"), said
