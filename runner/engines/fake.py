"""Scripted workers for tests of what is above the engines: no process, no container, no waiting."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.engines.base import CannotStart, EngineGone, WorkerDied, WorkerLost
from runner.messages import Done, Message, ProtocolError, Ready, Versions
from runner.model import Order


@dataclass(frozen=True, slots=True)
class Silence:
    """Nothing is said: one `receive` returns None at once."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The worker ends."""

    status: str = "killed by SIGKILL"


Step = Message | Silence | Exit | EngineGone | CannotStart | ProtocolError | WorkerLost
Play = Callable[[str, float], Iterable[Step]]
"""What a worker does when it is given a cell: from its id and its time limit to what `receive` returns or raises."""

READY = Ready(environment=Versions(vllm="", torch="0", flashinfer="0"), import_s=0.0)


def passes(cell: str, _timeout_s: float) -> Iterable[Step]:
    return [Done(cell=cell, duration_s=0.0, death=None)]


@dataclass
class FakeEngine:
    """Plays the same script in every worker; `openings` are what the first workers do instead of getting ready."""

    play: Play = passes
    openings: Iterable[Iterable[Step]] = ()
    name: str = "fake"
    workers: list["FakeWorker"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._openings = deque(list(opening) for opening in self.openings)

    def start(self, order: Order) -> "FakeWorker":
        opening = self._openings.popleft() if self._openings else [READY]
        if opening and isinstance(opening[0], EngineGone | CannotStart):
            raise opening[0]
        worker = FakeWorker(self.play, deque(opening), order.environment)
        self.workers.append(worker)
        return worker

    def sweep(self) -> list[str]:
        return []

    def close(self) -> None:
        for worker in self.workers:
            assert worker.killed, "a worker was left behind"


@dataclass
class FakeWorker:
    """One scripted worker, which remembers what it was told."""

    play: Play
    steps: deque[Step]
    environment: str
    told: list[Mapping[str, Any]] = field(default_factory=list)
    killed: bool = False
    status: str = "running"
    facts: Mapping[str, str] = field(default_factory=lambda: {"image_digest": "sha256:fake"})

    def send(self, message: Mapping[str, Any]) -> None:
        assert not self.killed, "a dead worker was spoken to"
        self.told.append(message)
        if "run" in message:
            self.steps.extend(self.play(message["run"]["cell"]["id"], message["run"]["timeout_s"]))

    def receive(self, timeout_s: float) -> Message | None:
        assert timeout_s > 0
        step = self.steps.popleft() if self.steps else Silence()
        if isinstance(step, Silence):
            return None
        if isinstance(step, Exit):
            self.status = step.status
            raise WorkerDied("the worker has ended")
        if isinstance(step, Exception):
            raise step
        return step

    def exit_status(self) -> str:
        return self.status

    def kill(self) -> None:
        self.killed = True
