"""Which machine takes a job: one whose GPUs are well. One that was the trouble of its last job lets others go first."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runner import devices
from runner.ci import asking, fitness
from runner.cli import main
from runner.devices import Device, Discovery
from runner.environments import daemon
from runner.environments.daemon import Daemon
from runner.errors import MachineError

GPUS = tuple(
    Device(index=n, uuid=f"GPU-{n}", name="NVIDIA H200", arch="sm90", memory_mib=143771, driver="580.95.05")
    for n in range(2)
)


@pytest.fixture(autouse=True)
def well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTNMATRIX_CUDA_PYTHON", raising=False)
    monkeypatch.setattr(devices, "discover", lambda: Discovery(devices=GPUS))
    monkeypatch.setattr(devices, "trouble", lambda _: "")
    monkeypatch.setattr(daemon, "examine", lambda: Daemon(version="24.0"))


def test_a_machine_that_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ci", "fit", "--arch", "sm90"]) == 0
    assert capsys.readouterr() == ("", "")


def test_one_gpu_that_is_ill_is_enough(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    lost = "the driver does not answer for it: GPU is lost"
    monkeypatch.setattr(devices, "trouble", lambda uuid: lost if uuid == "GPU-1" else "")
    assert main(["ci", "fit", "--arch", "sm90"]) == 3
    assert f"GPU 1 (GPU-1): {lost}" in capsys.readouterr().err


def test_no_gpu_another_one_and_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fitness.unfit("sm100") == [
        f"GPU {n} is sm90, and this machine is there for sm100: correct ARCH" for n in range(2)
    ]
    monkeypatch.setattr(daemon, "examine", lambda: Daemon(trouble="no daemon is running", advice="start it"))
    assert fitness.unfit("sm90") == ["Docker: no daemon is running: start it"]
    monkeypatch.setenv("ATTNMATRIX_CUDA_PYTHON", "/opt/x/bin/python")
    assert fitness.unfit("sm90") == [], "its cells need no container"
    monkeypatch.setattr(devices, "discover", lambda: Discovery(reason="the NVIDIA driver is loaded but shows no GPU"))
    assert fitness.unfit("sm90") == ["no GPU: the NVIDIA driver is loaded but shows no GPU"]


@pytest.mark.parametrize(
    ("code", "environment", "left"),
    [(3, "self-hosted", True), (0, "self-hosted", False), (1, "self-hosted", False), (3, "github-hosted", False)],
)
def test_a_job_that_ended_by_the_machines_trouble_leaves_word_for_the_next(
    in_small: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, environment: str,
    left: bool,
) -> None:  # fmt: skip
    in_small()
    work = tmp_path / "_work"
    (work / "_temp").mkdir(parents=True)
    monkeypatch.setenv("RUNNER_TEMP", str(work / "_temp"))
    monkeypatch.setenv("RUNNER_ENVIRONMENT", environment)
    monkeypatch.setattr(asking, "run", lambda *_: code)
    assert main(["ci", "run", "--filter", "sm90"]) == code
    assert (work / fitness.WORD).exists() is left
    (work / fitness.WORD).unlink(missing_ok=True)

    def breaks(*_: object) -> int:
        raise MachineError("no daemon")

    monkeypatch.setattr(asking, "run", breaks)
    assert main(["ci", "run", "--filter", "sm90"]) == 3
    assert (work / fitness.WORD).exists() is (environment == "self-hosted")
    script = (Path(__file__).parents[2] / "containers/jit-runner.sh").read_text()
    assert f"_work/{fitness.WORD}" in script
