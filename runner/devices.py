"""The GPUs of this machine, as the NVIDIA driver describes them through NVML."""

from dataclasses import dataclass

import pynvml


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One GPU; `arch` is its name in the matrix, such as `sm90`."""

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
        found = tuple(_device(index, driver) for index in range(pynvml.nvmlDeviceGetCount()))
        return Discovery(devices=found, reason="" if found else "the NVIDIA driver is loaded but shows no GPU")
    except pynvml.NVMLError as error:
        return Discovery(reason=f"the NVIDIA driver does not answer: {error}")
    finally:
        pynvml.nvmlShutdown()


def arch_of(major: int, minor: int) -> str:
    """The name of a CUDA compute capability: (9, 0) is `sm90`, (12, 0) is `sm120`."""
    return f"sm{major}{minor}"


def _device(index: int, driver: str) -> Device:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Device(
        index=index,
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        arch=arch_of(*pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
        memory_mib=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total) >> 20,
        driver=driver,
    )


def _text(value: str | bytes) -> str:
    """Older bindings give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
