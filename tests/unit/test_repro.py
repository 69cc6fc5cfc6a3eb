"""The command of `runner repro`: what the cases must know before there is a cell, and the sanitizer on a device."""

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from runner import repro
from runner.devices import Device
from runner.engines.walls import Walls
from runner.errors import UsageError
from runner.matrix import Matrix
from runner.options import EngineName, Machine

CELL = "0.32.0-flash_attn-sm90-hybrid_on-k0-c64-small-forward"
H200 = Device(index=0, uuid="GPU-0", name="NVIDIA H200", arch="sm90", memory_mib=143771, driver="580.95.05")


class Leased:
    """Leases of a machine whose driver says nothing bad."""

    held: ClassVar[list[str]] = []

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = devices

    def take(self, arch: str) -> SimpleNamespace:
        device = next(one for one in self._devices if one.arch == arch)
        self.held.append(device.uuid)
        return SimpleNamespace(device=device, give_back=self.held.clear)


@pytest.fixture
def command(
    shipped: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], request
) -> list[str]:
    """What would be run on a machine with these devices, and is what was printed."""
    devices, sanitize = request.param
    ran: list[list[str]] = []

    def run(words, **_):
        ran.append([str(word) for word in words])
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(repro, "choose", lambda engine: Machine(engine=engine, why="", devices=devices))
    monkeypatch.setattr(repro, "local_python", lambda *_: Path("/env/bin/python"))
    monkeypatch.setattr(repro.subprocess, "run", run)
    monkeypatch.setattr(repro, "Leases", Leased)
    assert repro.run(CELL, chart=shipped, engine=EngineName.LOCAL, seed=7, sanitize=sanitize) == 0
    assert shlex.split(capsys.readouterr().out) == ran[0]
    return ran[0]


@pytest.mark.parametrize("command", [((), "")], indirect=True)
def test_the_cases_are_told_what_they_must_know_before_there_is_a_cell(command: list[str]) -> None:
    assert command[:4] == ["env", "ATTNMATRIX_EVIDENCE=emulated", "ATTNMATRIX_CASE=forward", "ATTNMATRIX_SEED=7"]
    assert command[4] == "/env/bin/python"
    assert f"--cell={CELL}" in command
    assert "--seed=7" in command


@pytest.mark.parametrize("command", [((H200,), "memcheck")], indirect=True)
def test_on_a_device_it_runs_under_the_sanitizer(command: list[str]) -> None:
    assert "ATTNMATRIX_EVIDENCE=device" in command
    assert "CUDA_VISIBLE_DEVICES=GPU-0" in command, "the one that was leased"
    assert Leased.held == [], "and given back"
    at = command.index("compute-sanitizer")
    assert command[at : command.index("/env/bin/python")] == [
        "compute-sanitizer", "--target-processes", "all", "--error-exitcode", "1", "--tool", "memcheck",
    ]  # fmt: skip


def test_without_a_device_there_is_nothing_to_sanitize(
    shipped: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(repro, "choose", lambda engine: Machine(engine=engine, why=""))
    with pytest.raises(UsageError, match="its evidence is emulated here: compute-sanitizer"):
        repro.run(CELL, chart=shipped, engine=EngineName.LOCAL, sanitize="memcheck")


@pytest.mark.parametrize(("cdi", "words"), [(False, "--gpus=device=GPU-0"), (True, "--device=nvidia.com/gpu=GPU-0")])
def test_in_a_container_it_has_the_leased_gpu_alone(
    shipped: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    cdi: bool, words: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(repro, "choose", lambda engine: Machine(engine=engine, why="", devices=(H200,)))
    monkeypatch.setattr(repro, "Leases", Leased)
    monkeypatch.setattr(repro.daemon, "connect", lambda: None)
    monkeypatch.setattr(repro, "docker_image", lambda *_: "image:1")
    monkeypatch.setattr(repro, "has_cdi", lambda *_: cdi)
    monkeypatch.setattr(repro.subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 0))
    assert repro.run(CELL, chart=shipped, engine=EngineName.DOCKER) == 0
    command = shlex.split(capsys.readouterr().out)
    assert command[command.index("image:1") - 1] == words
    assert "all" not in command
    assert set(Walls().for_command_line()) <= set(command)
