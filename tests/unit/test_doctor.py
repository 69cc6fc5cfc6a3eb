"""What the doctor says of machines that are played."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from runner import devices, doctor
from runner.devices import Device, Discovery
from runner.environments import daemon, inventory
from runner.environments.daemon import Daemon
from runner.environments.inventory import Built

WHOLE = Built(kind="local", name=".runner/envs/a", release="0.32.0", state="whole", bytes=3_600_000_000, age_s=7200)
BROKEN = Built(kind="local", name=".runner/envs/b", release="", state="broken", bytes=0, age_s=7200)
GPU = Device(index=0, uuid="GPU-7", name="NVIDIA H200", arch="sm90", memory_mib=143771, driver="580.95.05")


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with room on its disk and nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(daemon, "examine", lambda: Daemon(trouble="is not installed", advice="install it"))
    monkeypatch.setattr(devices, "discover", lambda: Discovery(reason="no driver"))
    monkeypatch.setattr(inventory, "everything", list)
    room(monkeypatch, 50_000_000_000)


def room(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))


def findings() -> dict[str, tuple[str, str, str]]:
    return {one.what: (str(one.grade), one.found, one.advice) for one in doctor.examine()}


def test_a_bare_machine_can_run_and_is_told_what_more_there_could_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.run() == 0
    printed = capsys.readouterr().out
    for part in ("is not installed", "install it", "no driver", "the first run builds", "50.0 GB free"):
        assert part in printed, printed
    assert "\x1b" not in printed, "no colours in a pipe"


def test_json_says_the_same_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.run(json=True) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"what": "Docker", "grade": "absent", "found": "is not installed", "advice": "install it"} in rows
    assert [row["what"] for row in rows] == [
        "Python",
        "Docker",
        "Walls",
        "GPU",
        "Environments",
        "Disk",
        "Memory",
        "Cores",
    ]


def test_what_is_there_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "examine", lambda: Daemon(version="28.2.2"))
    monkeypatch.setattr(devices, "discover", lambda: Discovery(devices=(GPU,)))
    monkeypatch.setattr(inventory, "everything", lambda: [WHOLE])
    found = findings()
    assert found["Docker"] == ("ok", "a daemon answers, version 28.2.2", "")
    assert found["GPU 0"] == ("ok", "NVIDIA H200, sm90, 143771 MiB, driver 580.95.05, GPU-7", "")
    assert found["Environments"] == ("ok", "local .runner/envs/a (3.6 GB)", "")


@pytest.mark.parametrize(
    ("uid", "version", "docker", "grade", "found"),
    [
        (
            0,
            7,
            False,
            "absent",
            "reaches every file of this machine, as root, the network, and no other process (Landlock",
        ),
        (0, 7, True, "ok", "reaches every file of this machine, as root, the network, and no other process (Landlock"),
        (
            1000,
            7,
            False,
            "ok",
            "reaches the files of this user, the network, and no other process (Landlock, version 7)",
        ),
        (1000, 4, False, "absent", "and no other process but by signals (Landlock, version 4)"),
        (1000, 0, False, "absent", "and other processes too (this kernel has no Landlock)"),
    ],
)
def test_what_a_cell_reaches_without_a_container_is_said(
    monkeypatch: pytest.MonkeyPatch, uid: int, version: int, docker: bool, grade: str, found: str
) -> None:
    monkeypatch.setattr("os.getuid", lambda: uid)
    monkeypatch.setattr(doctor, "landlock", lambda: version)
    if docker:
        monkeypatch.setattr(daemon, "examine", lambda: Daemon(version="28.2.2"))
    said = findings()["Walls"]
    assert said[0] == grade
    assert found in said[1]
    assert ("in containers" in said[2]) == (grade == "absent")
    assert ("a user that owns nothing" in said[2]) == (uid == 0 and not docker)


def test_a_broken_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "everything", lambda: [WHOLE, BROKEN])
    grade, found, advice = findings()["Environments"]
    assert (grade, found) == ("absent", "local .runner/envs/a (3.6 GB)")
    assert "broken: .runner/envs/b: the next run builds it again" in advice


def test_a_full_disk_keeps_a_run_from_building_but_not_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    room(monkeypatch, 1_000_000_000)
    assert doctor.run() == 3
    assert "takes 6.0 GB" in findings()["Disk"][2]
    monkeypatch.setattr(inventory, "everything", lambda: [WHOLE])
    assert doctor.run() == 0


def test_a_folder_that_is_not_writable_is_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert doctor.run() == 3
    assert findings()["Disk"][1].endswith("is not writable")


def test_a_platform_without_locks_is_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert doctor.run() == 3
    assert findings()["Python"][0] == "bad"


def test_little_memory_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_cgroup_limit", lambda: 1 << 30)
    grade, found, advice = findings()["Memory"]
    assert grade == "absent"
    assert "may take 1.1 GB" in found
    assert "oom" in advice
