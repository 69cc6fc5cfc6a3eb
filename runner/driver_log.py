"""What the NVIDIA driver says of this run's GPUs while it lasts: Xid errors, through NVML's events.

An Xid (NVIDIA, "Xid Errors") is the driver's word on what befell a GPU: 31 is a read or write out of range by a kernel,
48 an uncorrectable memory error, 79 a GPU that fell off the bus. They go to `driver.log` of the run directory, with the
time, so that they can be laid beside the journal.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pynvml

from runner.devices import Device

NAME = "driver.log"
WAIT_MS = 500


@contextlib.contextmanager
def watched(devices: Sequence[Device], directory: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Watch while the body runs. Without devices, or where the driver has no such events, nothing is done but said."""
    if not devices:
        yield
        return
    try:
        pynvml.nvmlInit()
        events = pynvml.nvmlEventSetCreate()
        for device in devices:
            handle = pynvml.nvmlDeviceGetHandleByUUID(device.uuid)
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    except pynvml.NVMLError as error:
        say(f"the driver's errors are not watched: {error}")
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(events, directory / NAME, say, done), name="driver-log")
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(events)
            pynvml.nvmlShutdown()


def _watch(events: object, file: Path, say: Callable[[str], None], done: threading.Event) -> None:
    while not done.is_set():
        try:
            found = pynvml.nvmlEventSetWait_v2(events, WAIT_MS)
        except pynvml.NVMLError_Timeout:
            continue
        except pynvml.NVMLError as error:  # the GPU is lost, or the driver is: the health check says so
            say(f"the driver's errors are no longer watched: {error}")
            return
        uuid = pynvml.nvmlDeviceGetUUID(found.device)
        words = f"Xid {found.eventData} on {uuid.decode() if isinstance(uuid, bytes) else uuid}"
        with contextlib.suppress(OSError), file.open("a") as log:
            log.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {words}\n")
        say(f"the NVIDIA driver reports {words}: see {file}")
