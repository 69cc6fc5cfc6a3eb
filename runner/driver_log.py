"""What the NVIDIA driver says of GPUs while a run lasts: Xid errors, through NVML's events, and whose fault they are.

An Xid (NVIDIA, "Xid Errors") is the driver's word on what befell a GPU: 31 is a read or write out of range by a kernel,
48 an uncorrectable memory error, 79 a GPU that fell off the bus. They are kept with their time, so that they can be
laid beside the journal.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pynvml

from runner.devices import Device

NAME = "driver.log"
WAIT_MS = 500

MACHINE = {
    48: "an uncorrectable memory error",
    62: "its own controller stopped",
    63: "memory was taken out of use",
    64: "memory could not be taken out of use",
    74: "an NVLink error",
    79: "it fell off the bus",
    94: "a contained memory error",
    95: "an uncontained memory error",
    119: "its system processor does not answer",
    120: "its system processor failed",
    140: "an unrecovered memory error",
}
"""Numbers that no program can bring about, after NVIDIA's table of causes; 13, 31, 43 and 45 are a kernel's."""


@dataclass(frozen=True, slots=True)
class Xid:
    """One error of one device, and when it was heard of (`time.monotonic`)."""

    uuid: str
    number: int
    at: float


class DriverLog:
    """The errors of a run, as they were heard of. Used by several threads."""

    def __init__(self, *, file: Path | None = None, say: Callable[[str], None] = lambda _: None) -> None:
        self._file, self._say = file, say
        self._heard: list[Xid] = []

    def hear(self, uuid: str, number: int) -> None:
        self._heard.append(Xid(uuid, number, time.monotonic()))
        words = f"Xid {number} on {uuid}"
        if self._file:
            with contextlib.suppress(OSError), self._file.open("a") as log:
                log.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {words}\n")
        self._say(f"the NVIDIA driver reports {words}" + (f": see {self._file}" if self._file else ""))

    def lost(self, error: Exception) -> None:
        self._say(f"the driver's errors are no longer watched: {error}")

    def trouble(self, uuid: str, since: float) -> str:
        """What of a device's errors since then is the machine's fault; empty where nothing is."""
        found = [x.number for x in tuple(self._heard) if x.uuid == uuid and x.at >= since and x.number in MACHINE]
        return "; ".join(f"Xid {number}: {MACHINE[number]}" for number in dict.fromkeys(found))


@contextlib.contextmanager
def watched(devices: Sequence[Device], log: DriverLog) -> Iterator[DriverLog]:
    """Listen while the body runs. Without devices, or where the driver has no such events, the log stays empty."""
    if not devices:
        yield log
        return
    try:
        pynvml.nvmlInit()
        events = pynvml.nvmlEventSetCreate()
        for device in devices:
            handle = pynvml.nvmlDeviceGetHandleByUUID(device.uuid)
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    except pynvml.NVMLError as error:
        log.lost(error)
        yield log
        return
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(events, log, done), name="driver-log")
    watcher.start()
    try:
        yield log
    finally:
        done.set()
        watcher.join()
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(events)
            pynvml.nvmlShutdown()


def _watch(events: object, log: DriverLog, done: threading.Event) -> None:
    while not done.is_set():
        try:
            found = pynvml.nvmlEventSetWait_v2(events, WAIT_MS)
        except pynvml.NVMLError_Timeout:
            continue
        except pynvml.NVMLError as error:  # the GPU is lost, or the driver is: the health check says so
            log.lost(error)
            return
        uuid = pynvml.nvmlDeviceGetUUID(found.device)
        log.hear(uuid.decode() if isinstance(uuid, bytes) else uuid, int(found.eventData))
