"""What the engine tests share: cells that do as told, and one call that runs them."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from runner import dispatch
from runner.engines.base import Engine
from runner.logs import LogStore
from runner.model import Cell, CellOutcome, Event, Evidence, Order
from runner.stop import StopSignal
from tests.loads import SOLO

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "runner" / "worker.py"
CASES = ROOT / "tests" / "fixtures_cases" / "behave" / "cases"
BROKEN_CASES = ROOT / "tests" / "fixtures_cases" / "broken" / "cases"
UNSERVED_CASES = ROOT / "tests" / "fixtures_cases" / "unserved" / "cases"


def cell(do: str, *, second: str = "off", number: int = 0) -> Cell:
    axes = {"do": do, "second": second, "number": number}
    return Cell(id=f"{do}-{second}-{number}", axes=axes, labels={k: str(v) for k, v in axes.items()}, load=SOLO)


def order(*cells: Cell, environment: str = "test") -> Order:
    return Order(environment=environment, evidence=Evidence.CPU, cells=cells)


@dataclass
class Bench:
    """Runs cells on an engine and keeps what was seen."""

    engine: Engine
    directory: Path
    stop: StopSignal = field(default_factory=StopSignal)
    events: list[Event] = field(default_factory=list)
    watch: Callable[[Event], None] = lambda _event: None
    patience: dispatch.Patience = field(default_factory=lambda: dispatch.Patience(grace_s=2, engine_wait_s=0.05))

    def run(
        self, *orders: Order, jobs: int = 1, timeout_s: float = 20.0, silence_s: float = 0.0
    ) -> tuple[CellOutcome, ...]:
        outcomes = dispatch.run(
            orders,
            engine=self.engine,
            jobs=jobs,
            timeout_s=timeout_s,
            silence_s=silence_s,
            on_event=self._see,
            stop=self.stop,
            logs=LogStore(self.directory),
            patience=self.patience,
        )
        assert [outcome.cell for outcome in outcomes] == [cell for order in orders for cell in order.cells]
        assert threading.active_count() == 1 or not [t for t in threading.enumerate() if t.name.startswith("slot-")]
        return outcomes

    def do(self, *deeds: str, **options: float) -> tuple[CellOutcome, ...]:
        """One order, one slot, one cell for each deed."""
        return self.run(order(*(cell(do, number=n) for n, do in enumerate(deeds))), **options)  # type: ignore[arg-type]

    def log(self, outcome: CellOutcome) -> str:
        return (self.directory / outcome.log).read_text() if outcome.log else ""

    def _see(self, event: Event) -> None:
        self.events.append(event)
        self.watch(event)


def passed(outcome: CellOutcome) -> bool:
    return (
        [case.state.value for case in outcome.cases] == ["pass"]
        and outcome.death is None
        and not outcome.infra
        and not outcome.not_run
    )


def workers_among(pids: Iterable[int]) -> list[int]:
    """Of the processes that workers and their cells are, the workers: those that none of the others started.

    Not the lowest numbers: the kernel counts processes anew from time to time.
    """
    everyone, found = set(pids), []
    for pid in everyone:
        with contextlib.suppress(OSError):
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if parent not in everyone and os.getpgid(pid) == pid:
                found.append(pid)
    return sorted(found)


@dataclass(frozen=True)
class Harm:
    """What can befall a worker from outside."""

    kill: Callable[[], None]
    freeze: Callable[[], None]
