"""Xid errors of a driver that is played."""

import time
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from runner import driver_log
from runner.devices import Device

GPU = Device(index=0, uuid="GPU-1", name="NVIDIA H200", arch="sm90", memory_mib=1, driver="580")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """NVML with events that a test puts into `events`; `registered` and `freed` are what was asked of it."""
    state = SimpleNamespace(events=[], registered=[], freed=0)

    def wait(_events: object, milliseconds: int) -> SimpleNamespace:
        if state.events:
            found = state.events.pop(0)
            if isinstance(found, Exception):
                raise found
            return SimpleNamespace(device="handle", eventData=found)
        time.sleep(min(milliseconds, 10) / 1000)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)

    def free(_events: object) -> None:
        state.freed += 1

    for name, function in {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlEventSetCreate": lambda: "events",
        "nvmlEventSetFree": free,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetUUID": lambda _: b"GPU-1",
        "nvmlDeviceRegisterEvents": lambda handle, kind, _: state.registered.append((handle, kind)),
        "nvmlEventSetWait_v2": wait,
    }.items():
        monkeypatch.setattr(pynvml, name, function)
    return state


def until(condition) -> None:
    for _ in range(200):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to be")


def test_an_xid_is_said_and_written_with_its_gpu(nvml: SimpleNamespace, tmp_path: Path) -> None:
    said: list[str] = []
    log = driver_log.DriverLog(file=tmp_path / driver_log.NAME, say=said.append)
    with driver_log.watched([GPU], log):
        nvml.events += [31, 79]
        until(lambda: len(said) == 2)
    assert nvml.registered == [("GPU-1", pynvml.nvmlEventTypeXidCriticalError)]
    lines = (tmp_path / driver_log.NAME).read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["Xid 31 on GPU-1", "Xid 79 on GPU-1"]
    assert "the NVIDIA driver reports Xid 31 on GPU-1" in said[0]
    assert nvml.freed == 1


def test_a_driver_that_goes_away_is_said_and_ends_nothing(nvml: SimpleNamespace, tmp_path: Path) -> None:
    said: list[str] = []
    with driver_log.watched([GPU], driver_log.DriverLog(file=tmp_path / driver_log.NAME, say=said.append)):
        nvml.events.append(pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST))
        until(lambda: said)
    assert "no longer watched" in said[0]
    assert not (tmp_path / driver_log.NAME).exists()


def test_without_devices_the_driver_is_not_asked(nvml: SimpleNamespace) -> None:
    with driver_log.watched([], driver_log.DriverLog()):
        pass
    assert nvml.registered == []
    assert nvml.freed == 0


def test_what_a_kernel_did_is_not_the_machines_fault_and_what_was_before_is_not_this_cells() -> None:
    log = driver_log.DriverLog()
    log.hear("GPU-1", 31)
    log.hear("GPU-2", 79)
    assert log.trouble("GPU-1", 0.0) == ""
    assert log.trouble("GPU-2", 0.0) == "Xid 79: it fell off the bus"
    assert log.trouble("GPU-2", time.monotonic()) == ""
