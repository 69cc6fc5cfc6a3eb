"""What only holds without walls around a worker: a cell can reach its worker, and still nothing is left behind."""

import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from runner.dispatch import Patience
from runner.engines.local import LocalEngine, installed
from runner.model import Evidence, WorkerReady
from tests.contract.bench import BROKEN_CASES, CASES, UNSERVED_CASES, WORKER, Bench, cell, order, passed


@pytest.fixture
def bench(local_engine: LocalEngine, tmp_path: Path) -> Bench:
    return Bench(local_engine, tmp_path)


def test_cases_that_do_not_import_are_infra_with_the_reason(tmp_path: Path) -> None:
    engine = LocalEngine(python_for=lambda _: Path(sys.executable), worker=WORKER, cases=BROKEN_CASES)
    bench = Bench(engine, tmp_path)
    for outcome in bench.do("nothing", "nothing", "nothing"):
        assert "the cases cannot be imported in environment test" in outcome.infra
        assert "a_module_that_nobody_has" in outcome.infra
    assert not [event for event in bench.events if isinstance(event, WorkerReady)]


def test_cases_that_do_not_serve_a_release_are_infra_with_their_sentence_alone(tmp_path: Path) -> None:
    engine = LocalEngine(python_for=lambda _: Path(sys.executable), worker=WORKER, cases=UNSERVED_CASES)
    for outcome in Bench(engine, tmp_path).do("nothing", "nothing"):
        assert outcome.infra.endswith("vLLM 0.9.2 is older than the releases that the cases serve")
        assert "Traceback" not in outcome.infra


def test_a_python_that_is_not_there_is_infra_with_its_path(tmp_path: Path) -> None:
    engine = LocalEngine(python_for=lambda _: tmp_path / "bin" / "python", worker=WORKER, cases=BROKEN_CASES)
    (outcome,) = Bench(engine, tmp_path).do("nothing")
    assert outcome.infra == f"cannot start {tmp_path}/bin/python: No such file or directory"


def test_the_callers_environment_does_not_reach_a_cell(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_CALLER", "secret")
    (outcome,) = bench.do("print_the_environment")
    assert passed(outcome)
    assert "TMPDIR=" in bench.log(outcome)
    assert "A_SECRET" not in bench.log(outcome)


SMI = """#!/bin/sh
echo "NVIDIA-SMI played: $*"
"""


def test_a_timeout_on_a_device_keeps_what_the_driver_and_the_machine_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(SMI)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    engine = LocalEngine(python_for=lambda _: Path(sys.executable), worker=WORKER, cases=CASES)
    bench = Bench(engine, tmp_path)
    on_device = replace(order(cell("sleep")), evidence=Evidence.DEVICE, device="GPU-1")
    (late,) = bench.run(on_device, timeout_s=1.0)
    engine.close()
    log = bench.log(late)
    assert late.death
    assert "NVIDIA-SMI played: \n" in log
    assert "NVIDIA-SMI played: --query-compute-apps=pid,name,used_memory --format=csv" in log
    assert re.search(r"^ +\d+ +\d+ [SR] .*worker\.py", log, re.MULTILINE), "the process list"
    assert "in sleep" in log, "the stacks, as everywhere"


def test_a_tool_of_the_driver_that_hangs_holds_up_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexec sleep 600\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    engine = LocalEngine(python_for=lambda _: Path(sys.executable), worker=WORKER, cases=CASES)
    bench = Bench(engine, tmp_path)
    bench.patience = Patience()  # as in a run: longer than the tool is given
    on_device = replace(order(cell("sleep"), cell("nothing")), evidence=Evidence.DEVICE, device="GPU-1")
    started = time.monotonic()
    late, after = bench.run(on_device, timeout_s=1.0)
    engine.close()
    assert late.death
    assert passed(after)
    assert time.monotonic() - started < 20
    assert "nvidia-smi did not answer" in bench.log(late)


def test_what_an_environment_for_a_gpu_is_made_of_is_in_the_outcome(tmp_path: Path) -> None:
    """The digest is over the packages installed beside its Python; no other evidence has it from here."""
    engine = LocalEngine(python_for=lambda _: Path(sys.executable), worker=WORKER, cases=CASES)
    bench = Bench(engine, tmp_path)
    (found,) = bench.run(replace(order(cell("nothing")), evidence=Evidence.DEVICE, device="GPU-1"))
    (other,) = bench.run(order(cell("nothing")))
    engine.close()
    assert re.fullmatch(r"[0-9a-f]{16}", found.environment["recipe_digest"])
    assert other.environment["recipe_digest"] == ""


def test_a_package_more_or_another_version_is_another_environment(tmp_path: Path) -> None:
    def made(name: str, *packages: str) -> Path:
        for package in packages:
            folder = tmp_path / name / "lib" / "python3.11" / "site-packages" / f"{package}.dist-info"
            folder.mkdir(parents=True)
            title, version = package.split("-")
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {title}\nVersion: {version}\n")
        return tmp_path / name / "bin" / "python"

    one, same = made("one", "vllm-0.32.0", "torch-2.13.0"), made("same", "torch-2.13.0", "vllm-0.32.0")
    others = [made("older", "vllm-0.31.0", "torch-2.13.0"), made("more", "vllm-0.32.0", "torch-2.13.0", "x-1")]
    assert installed(one) == installed(same)
    assert len({installed(python) for python in (one, *others)}) == 3
