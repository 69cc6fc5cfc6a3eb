"""A worker's exclusive hold on a GPU, across all runners of a machine.

A lease is a lock file named by the device's UUID. The kernel frees it when its holder dies, however that happens.
"""

import contextlib
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from runner import devices, holder
from runner.devices import Device
from runner.engines.base import CannotStart

FOLDER = Path(tempfile.gettempdir()) / "attnmatrix-leases"
ENOUGH = 2
"""Failed health checks in a row after which a device is set aside for the run."""
POLL_S = 1.0


class Lease:
    """A device that nobody else has until `give_back`, which may be called twice."""

    def __init__(self, device: Device, lock: FileLock, examine: Callable[[], str]) -> None:
        self.device = device
        self._lock, self._examine = lock, examine

    def give_back(self) -> None:
        """Examined once more before, so that what broke it counts against it; memory may take a moment to be free."""
        if self._lock.is_locked:
            self._examine()
            self._lock.release()


class Leases:
    """The devices of this run, by arch."""

    def __init__(
        self,
        found: Sequence[Device],
        *,
        folder: Path = FOLDER,
        trouble: Callable[[str], str] = devices.trouble,
        ailing: Callable[[str], str] = devices.ailing,
        wait_s: float = 300.0,
    ) -> None:
        self._devices, self._folder, self._wait_s = tuple(found), folder, wait_s
        self._trouble, self._ailing = trouble, ailing
        self._failed: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}
        self._lock = threading.Lock()

    def take(self, arch: str) -> Lease:
        """A healthy device of the arch; CannotStart with the reasons where there is none, or none becomes free."""
        until = time.monotonic() + self._wait_s
        while True:
            fit = [d for d in self._devices if d.arch == arch and self._failed[d.uuid] < ENOUGH]
            if not fit:
                raise CannotStart(f"no {arch} device is fit: {self._why(arch)}")
            for device in fit:
                if (lease := self._try(device)) is not None:
                    return lease
            if time.monotonic() >= until:
                raise CannotStart(f"no {arch} device became free within {self._wait_s:g} s: {self._why(arch)}")
            time.sleep(POLL_S)

    def _try(self, device: Device) -> Lease | None:
        self._folder.mkdir(mode=0o1777, exist_ok=True)
        path = self._folder / f"{device.uuid}.lock"
        lock = FileLock(path, mode=0o666)
        signed = path.with_suffix(".holder")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            self._note(device, f"held by {holder.who(signed, patience_s=0)}")
            return None
        if self._examine(device, self._trouble):
            lock.release()
            return None
        with contextlib.suppress(OSError):
            holder.sign(signed)
        return Lease(device, lock, partial(self._examine, device, self._ailing))

    def _examine(self, device: Device, question: Callable[[str], str]) -> str:
        """What is wrong with a device that we hold; `ENOUGH` such answers in a row, and it is held no more."""
        reason = question(device.uuid)
        with self._lock:
            self._failed[device.uuid] = self._failed[device.uuid] + 1 if reason else 0
        if reason:
            self._note(device, reason)
        return reason

    def _note(self, device: Device, reason: str) -> None:
        self._reasons[device.uuid] = reason

    def _why(self, arch: str) -> str:
        said = [f"{d.name} {d.uuid}: {self._reasons.get(d.uuid, 'unknown')}" for d in self._devices if d.arch == arch]
        return "; ".join(said) or "none was found"
