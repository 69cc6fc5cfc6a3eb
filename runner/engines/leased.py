"""An engine whose workers on a device each hold one GPU alone, and give it back when they end."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from runner import devices
from runner.driver_log import WAIT_MS, DriverLog
from runner.engines.base import Engine, WorkerHandle, WorkerLost
from runner.leases import Lease, Leases
from runner.messages import Case, Done, Message
from runner.model import Evidence, Fault, Order, State


class LeasedEngine:
    """Another engine, with a lease for each worker of an order whose evidence is `device`."""

    def __init__(
        self,
        engine: Engine,
        leases: Leases,
        driver: DriverLog | None = None,
        ailing: Callable[[str], str] = devices.ailing,
    ) -> None:
        self.name = engine.name
        self._engine, self._leases = engine, leases
        self._driver, self._ailing = driver or DriverLog(), ailing

    def start(self, order: Order) -> WorkerHandle:
        """CannotStart where no device of the order's arch is fit or becomes free."""
        if order.evidence is not Evidence.DEVICE:
            return self._engine.start(order)
        lease = self._leases.take(order.arch)
        try:
            worker = self._engine.start(replace(order, device=lease.device.uuid))
        except BaseException:
            lease.give_back()
            raise
        return LeasedWorker(worker, lease, self._driver, self._ailing)

    def sweep(self) -> list[str]:
        return self._engine.sweep()

    def close(self) -> None:
        self._engine.close()


class LeasedWorker:
    """A worker and its lease. Trouble with the product on a device that broke meanwhile is the machine's.

    Such a worker is lost, with the reason, so that its cell runs again, on another device where this one stays unfit.
    """

    def __init__(self, worker: WorkerHandle, lease: Lease, driver: DriverLog, ailing: Callable[[str], str]) -> None:
        self._worker, self._lease, self._driver, self._ailing = worker, lease, driver, ailing
        self._since = time.monotonic()
        self._bad = False  # whether a case of the running cell went wrong
        self._broken = ""
        self.facts: Mapping[str, str] = {
            **worker.facts,
            "gpu": lease.device.name,
            "driver": lease.device.driver,
        }

    def send(self, message: Mapping[str, Any]) -> None:
        self._since, self._bad = time.monotonic(), False
        self._worker.send(message)

    def receive(self, timeout_s: float) -> Message | None:
        try:
            message = self._worker.receive(timeout_s)
        except WorkerLost as error:
            self._broken = self._trouble()
            if self._broken:
                raise WorkerLost(self._broken) from error
            raise
        if isinstance(message, Case):
            self._bad |= State(message.state).fault is Fault.PRODUCT
        if isinstance(message, Done) and (message.death or self._bad):
            if message.death:
                time.sleep(2 * WAIT_MS / 1000)  # the driver's word comes later than the death that it explains
            self._broken = self._trouble()
            if self._broken:
                raise WorkerLost(self._broken)
        return message

    def exit_status(self) -> str:
        return self._broken or self._worker.exit_status()

    def kill(self) -> None:
        self._worker.kill()
        self._lease.give_back()

    def _trouble(self) -> str:
        uuid = self._lease.device.uuid
        reason = self._driver.trouble(uuid, self._since) or self._ailing(uuid)
        return f"{self._lease.device.name} {uuid} failed: {reason}" if reason else ""
