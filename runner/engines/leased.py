"""An engine whose workers on a device each hold one GPU alone, and give it back when they end."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runner.engines.base import Engine, WorkerHandle
from runner.leases import Lease, Leases
from runner.messages import Message
from runner.model import Evidence, Order


class LeasedEngine:
    """Another engine, with a lease for each worker of an order whose evidence is `device`."""

    def __init__(self, engine: Engine, leases: Leases) -> None:
        self.name = engine.name
        self._engine, self._leases = engine, leases

    def start(self, order: Order) -> WorkerHandle:
        """CannotStart where no device of the order's arch is fit or becomes free."""
        if order.evidence is not Evidence.DEVICE:
            return self._engine.start(order)
        lease = self._leases.take(order.arch)
        try:
            return LeasedWorker(self._engine.start(replace(order, device=lease.device.uuid)), lease)
        except BaseException:
            lease.give_back()
            raise

    def sweep(self) -> list[str]:
        return self._engine.sweep()

    def close(self) -> None:
        self._engine.close()


class LeasedWorker:
    """A worker and its lease."""

    def __init__(self, worker: WorkerHandle, lease: Lease) -> None:
        self._worker, self._lease = worker, lease
        self.facts: Mapping[str, str] = {
            **worker.facts,
            "gpu": lease.device.name,
            "driver": lease.device.driver,
        }

    def send(self, message: Mapping[str, Any]) -> None:
        self._worker.send(message)

    def receive(self, timeout_s: float) -> Message | None:
        return self._worker.receive(timeout_s)

    def exit_status(self) -> str:
        return self._worker.exit_status()

    def kill(self) -> None:
        self._worker.kill()
        self._lease.give_back()
