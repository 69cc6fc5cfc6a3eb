"""GPU discovery, with a driver that is played."""

import re
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from runner import devices
from runner.devices import Device


def play(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> list[str]:
    """Replace NVML's functions; gives the names of those that were called."""
    called: list[str] = []

    def make(name: str, answer: Any) -> Any:
        def function(*arguments: Any) -> Any:
            called.append(name)
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return function

    defaults = {
        "nvmlInit": None,
        "nvmlDeviceGetMigMode": pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED),
        "nvmlShutdown": None,
        "nvmlSystemGetDriverVersion": "580.95.05",
        "nvmlDeviceGetCount": 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetName": lambda handle: ["NVIDIA H200", "NVIDIA GB300"][handle],
        "nvmlDeviceGetCudaComputeCapability": lambda handle: [(9, 0), (10, 3)][handle],
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=(143771 + handle) << 20, free=140000 << 20),
    }
    for name, answer in (defaults | answers).items():
        monkeypatch.setattr(pynvml, name, make(name, answer))
    return called


def test_each_device_is_described_with_its_arch(monkeypatch: pytest.MonkeyPatch) -> None:
    called = play(monkeypatch)
    assert devices.discover() == devices.Discovery(
        devices=(
            Device(index=0, uuid="GPU-0", name="NVIDIA H200", arch="sm90", memory_mib=143771, driver="580.95.05"),
            Device(index=1, uuid="GPU-1", name="NVIDIA GB300", arch="sm103", memory_mib=143772, driver="580.95.05"),
        )
    )
    assert called[-1] == "nvmlShutdown"


def test_bytes_from_older_bindings_become_text(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, nvmlDeviceGetName=b"NVIDIA A100", nvmlSystemGetDriverVersion=b"535.1")
    found = devices.discover().devices[0]
    assert (found.name, found.driver) == ("NVIDIA A100", "535.1")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver is installed"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "not loaded"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "may not open"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "does not start: .*[Mm]ismatch"),
    ],
)
def test_a_machine_without_a_driver_has_no_devices_and_a_reason(
    error: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = play(monkeypatch, nvmlInit=pynvml.NVMLError(error))
    found = devices.discover()
    assert found.devices == ()
    assert re.search(reason, found.reason)
    assert called == ["nvmlInit"], "what was not started is not shut down"


def test_a_gpu_that_fell_off_the_bus_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    called = play(monkeypatch, nvmlDeviceGetUUID=pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST))
    found = devices.discover()
    assert found.devices == ()
    assert "does not answer" in found.reason
    assert called[-1] == "nvmlShutdown"


def test_a_driver_without_gpus_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, nvmlDeviceGetCount=0)
    assert "shows no GPU" in devices.discover().reason


@pytest.mark.parametrize(
    ("capability", "arch"), [((8, 0), "sm80"), ((8, 9), "sm89"), ((10, 3), "sm103"), ((12, 0), "sm120")]
)
def test_an_arch_is_named_after_its_compute_capability(capability: tuple[int, int], arch: str) -> None:
    assert devices.arch_of(*capability) == arch


A = Device(index=0, uuid="GPU-aaaa", name="NVIDIA H200", arch="sm90", memory_mib=1, driver="580")
B = Device(index=1, uuid="GPU-abbb", name="NVIDIA H200", arch="sm90", memory_mib=1, driver="580")
C = Device(index=2, uuid="GPU-cccc", name="NVIDIA B200", arch="sm100", memory_mib=1, driver="580")


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        (None, [A, B, C]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("2,0", [C, A]),
        ("GPU-c,GPU-aa", [C, A]),
        ("GPU-a,1", []),  # two GPUs begin so
        ("1,7,0", [B]),  # the first wrong entry ends the list
        ("1, 2", [B, C]),
        ("1,1", [B]),
    ],
)
def test_the_callers_choice_of_devices_is_obeyed(wanted: str | None, seen: list[Device]) -> None:
    assert list(devices.visible([A, B, C], wanted)) == seen


def test_a_choice_that_leaves_nothing_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert devices.discover() == devices.Discovery(reason="CUDA_VISIBLE_DEVICES=7 leaves none of the 2 here")


def test_a_gpu_that_is_cut_into_instances_is_its_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    def instance(handle: int, place: int) -> str:
        if place:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return f"MIG-{handle}-{place}"

    play(
        monkeypatch,
        nvmlDeviceGetCount=1,
        nvmlDeviceGetMigMode=lambda handle: [1, 1],
        nvmlDeviceGetMaxMigDeviceCount=7,
        nvmlDeviceGetMigDeviceHandleByIndex=instance,
        nvmlDeviceGetUUID=lambda handle: handle,
        nvmlDeviceGetName=lambda handle: "NVIDIA H200 MIG 1g.18gb",
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=18 << 30, free=18 << 30),
    )
    (found,) = devices.discover().devices
    assert (found.uuid, found.arch, found.memory_mib) == ("MIG-0-0", "sm90", 18432)


UNSUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.mark.parametrize(
    ("answers", "trouble"),
    [
        ({}, ""),
        ({"nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(total=100 << 30, free=20 << 30)}, "MiB are in use"),
        ({"nvmlDeviceGetTotalEccErrors": lambda *_: 3}, "3 uncorrected memory errors"),
        ({"nvmlDeviceGetRetiredPagesPendingStatus": lambda _: 1}, "waits to be remapped"),
        ({"nvmlDeviceGetRemappedRows": lambda _: (0, 1, 1, 0)}, "waits to be remapped"),
        ({"nvmlDeviceGetRemappedRows": lambda _: (0, 1, 0, 1)}, "needs to be replaced"),
        ({"nvmlDeviceGetHandleByUUID": pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)}, "does not answer for it"),
        ({"nvmlInit": pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)}, "NVML does not start"),
    ],
)
def test_a_device_is_examined_by_what_its_driver_counts(
    answers: dict[str, Any], trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = {
        "nvmlDeviceGetHandleByUUID": lambda uuid: 0,
        "nvmlDeviceGetTotalEccErrors": lambda *_: 0,
        "nvmlDeviceGetRetiredPagesPendingStatus": UNSUPPORTED,
        "nvmlDeviceGetRemappedRows": lambda _: (0, 0, 0, 0),
    }
    play(monkeypatch, **(quiet | answers))
    found = devices.trouble("GPU-0")
    assert trouble in found
    assert bool(found) == bool(trouble)
