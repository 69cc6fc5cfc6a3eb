"""The GPUs of this machine, as the NVIDIA driver describes them through NVML."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

LEAST_FREE = 0.5
"""Of its memory, for a device to be fit for cells: less, and somebody else computes on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One GPU, or one MIG instance of it; `arch` is its name in the matrix, such as `sm90`."""

    index: int
    uuid: str
    name: str
    arch: str
    memory_mib: int
    driver: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Discovery:
    """The GPUs found, and where there are none, why."""

    devices: tuple[Device, ...] = ()
    reason: str = ""


VISIBLE = "CUDA_VISIBLE_DEVICES"


def discover() -> Discovery:
    """Ask the driver; a machine without one has no devices, which is no error."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return Discovery(reason="no NVIDIA driver is installed (libnvidia-ml.so.1 is not there)")
    except pynvml.NVMLError_DriverNotLoaded:
        return Discovery(reason="the NVIDIA driver is installed but not loaded")
    except pynvml.NVMLError_NoPermission:
        return Discovery(reason="this user may not open the NVIDIA devices")
    except pynvml.NVMLError as error:
        return Discovery(reason=f"NVML does not start: {error}")
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        found = [device for index in range(pynvml.nvmlDeviceGetCount()) for device in _devices(index, driver)]
        wanted = os.environ.get(VISIBLE)
        seen = visible(found, wanted)
        nothing = "the NVIDIA driver is loaded but shows no GPU"
        reason = f"{VISIBLE}={wanted} leaves none of the {len(found)} here" if found else nothing
        return Discovery(devices=seen, reason="" if seen else reason)
    except pynvml.NVMLError as error:
        return Discovery(reason=f"the NVIDIA driver does not answer: {error}")
    finally:
        pynvml.nvmlShutdown()


def visible(devices: Sequence[Device], wanted: str | None) -> tuple[Device, ...]:
    """What CUDA_VISIBLE_DEVICES lets a process see: indices, or beginnings of UUIDs, in the order given.

    As CUDA reads it (CUDA C++ Programming Guide, "CUDA Environment Variables"): the first entry that names no device
    ends the list. Indices are NVML's, that is by PCI bus id.
    """
    if wanted is None:
        return tuple(devices)
    chosen: list[Device] = []
    for word in wanted.split(","):
        name = word.strip()
        named = [d for d in devices if (str(d.index) == name if name.isdecimal() else name and d.uuid.startswith(name))]
        if len(named) != 1 or named[0] in chosen:
            break
        chosen += named
    return tuple(chosen)


def trouble(uuid: str) -> str:
    """Why a device is not fit for a worker, in a clause; empty where it is."""
    return _asked(uuid, _busy) or ailing(uuid)


def ailing(uuid: str) -> str:
    """What is broken about a device, whoever computes on it, in a clause; empty where nothing is."""
    return _asked(uuid, _damage)


def _asked(uuid: str, question: Callable[[Any], str]) -> str:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"NVML does not start: {error}"
    try:
        return question(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError as error:
        return f"the driver does not answer for it: {error}"
    finally:
        pynvml.nvmlShutdown()


def _busy(handle: Any) -> str:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    if memory.free < LEAST_FREE * memory.total:
        return f"{(memory.total - memory.free) >> 20:,} of its {memory.total >> 20:,} MiB are in use"
    return ""


def _damage(handle: Any) -> str:
    errors, pending, failed = 0, False, False
    pynvml.nvmlDeviceGetMemoryInfo(handle)  # a device that fell off the bus does not answer even this
    with _if_supported():
        errors = pynvml.nvmlDeviceGetTotalEccErrors(
            handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        )
    with _if_supported():
        pending = bool(pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))
    with _if_supported():
        _, _, waits, failed = pynvml.nvmlDeviceGetRemappedRows(handle)
        pending = pending or bool(waits)
    if errors:
        return f"{errors} uncorrected memory errors since its driver was loaded: it needs a reset"
    if failed:
        return "its memory could not be remapped: it needs to be replaced"
    return "memory waits to be remapped: it needs a reset" if pending else ""


@contextlib.contextmanager
def _if_supported() -> Iterator[None]:
    """Not every GPU has each counter."""
    with contextlib.suppress(pynvml.NVMLError_NotSupported):
        yield


def arch_of(major: int, minor: int) -> str:
    """The name of a CUDA compute capability: (9, 0) is `sm90`, (12, 0) is `sm120`."""
    return f"sm{major}{minor}"


def _devices(index: int, driver: str) -> Iterator[Device]:
    """A GPU, or where it is cut into MIG instances, those."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    parts = [handle]
    with _if_supported():
        if pynvml.nvmlDeviceGetMigMode(handle)[0]:
            parts = list(_instances(handle))
    arch = arch_of(*pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    for part in parts:
        yield _device(part, index, arch, driver)


def _instances(handle: Any) -> Iterator[Any]:
    for place in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(pynvml.NVMLError_NotFound):  # an empty place
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)


def _device(handle: Any, index: int, arch: str, driver: str) -> Device:
    return Device(
        index=index,
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        arch=arch,
        memory_mib=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20,
        driver=driver,
    )


def _text(value: str | bytes) -> str:
    """Older bindings give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
