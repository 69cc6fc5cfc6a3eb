"""The Protocol that every engine follows, and the three ways in which one can fail."""

from collections.abc import Mapping
from typing import Any, Protocol

from runner.messages import Message
from runner.model import Order


class EngineError(Exception):
    """Base of what engines and workers raise; a message is a reason fit for a result."""


class WorkerLost(EngineError):
    """A worker's streams have ended: it will say nothing more. A fresh one may do better."""


class WorkerDied(WorkerLost):
    """The same, and what ended is its process: neither what it runs on nor the way to it."""


class CannotStart(EngineError):
    """No worker can be started for this order, however often it is tried: no image, no device."""


class NotNow(CannotStart):
    """The same, for the moment: a conflict, a full disk, an engine that is overloaded. It is tried again, later."""


class EngineGone(EngineError):
    """The engine itself does not answer, as when its daemon went away: no worker of any order can be started."""


class WorkerHandle(Protocol):
    """One worker, used by one thread. Whoever started it ends it with `kill`, which may be called twice."""

    @property
    def facts(self) -> Mapping[str, str]:
        """What the host knows about where this worker runs, such as `image_digest`."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Gives the worker one message; WorkerLost where it has ended."""

    def receive(self, timeout_s: float) -> Message | None:
        """The next message, or None after that long a silence; WorkerLost, EngineGone or ProtocolError."""

    def exit_status(self) -> str:
        """How the worker ended, for people: `exit code 1`, `killed by SIGKILL`. To be asked before `kill`."""

    def kill(self) -> None:
        """Ends the worker and everything it started, and removes what it occupied. Never raises."""


class Engine(Protocol):
    """Starts workers. Used by several threads at once."""

    name: str

    def start(self, order: Order) -> WorkerHandle:
        """A new worker for this order, not yet ready; CannotStart or EngineGone."""

    def sweep(self) -> list[str]:
        """Removes what runs left behind that are no longer alive, and names it."""

    def close(self) -> None:
        """Removes whatever this run still has. Never raises."""
