"""The only concurrent module: slots that keep workers warm, feed them cells, and give every cell exactly one outcome.

A slot is a thread that owns at most one worker. Slots share the orders; each stays with the order whose worker it has.
"""

import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from runner import outcome
from runner.engines.base import (
    CannotStart,
    Engine,
    EngineError,
    EngineGone,
    NotNow,
    WorkerDied,
    WorkerHandle,
    WorkerLost,
)
from runner.logs import CellLog, LogStore
from runner.messages import Broken, Case, Done, Log, Message, ProtocolError, Ready
from runner.model import (
    ENVIRONMENT,
    CaseReported,
    CaseResult,
    Cell,
    CellFinished,
    CellOutcome,
    CellStarted,
    Death,
    Event,
    Evidence,
    Fault,
    Order,
    State,
    WorkerReady,
    WorkerStarting,
)
from runner.stop import StopSignal

POLL_S = 0.25  # how soon a slot notices a second Ctrl-C
CASES_LIMIT = 10_000
ATTEMPTS = 2
IMPORT = "import"
"""The case of a cell whose vLLM cannot be imported."""
NO_FACTS = dict.fromkeys(ENVIRONMENT, "")
_RELEASE = re.compile(r"\d+(\.\d+)+")
_BUILD = re.compile(r"(\.post\d+)?(\+.*)?$")
"""What a version has behind the release: a package that was built again, and for what."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long things other than a cell may take, in seconds."""

    grace_s: float = 10.0
    """Beyond a cell's own limit, which its worker enforces, until the worker itself counts as stuck."""
    start_s: float = 300.0
    """For the imports of a worker."""
    engine_tries: int = 3
    engine_wait_s: float = 2.0
    """Before an engine that is gone is tried again; doubled each time."""


@dataclass(frozen=True, slots=True)
class Task:
    """The next cell for a slot, and the index of its order."""

    index: int
    order: Order
    cell: Cell


class OrderBroken(EngineError):
    """No worker can serve this order; its other cells need not be tried."""


class CandidateBroken(OrderBroken):
    """A worker started, and what the candidate changes of vLLM cannot be imported."""


class Stopped(EngineError):
    """The run is being stopped; what was under way is given up."""


class Queue:
    """The cells not yet taken, and why the ones that never will be are not."""

    def __init__(self, orders: Sequence[Order], places: Callable[[Order], float] = lambda _: math.inf) -> None:
        self._lock = threading.Lock()
        self._orders = orders
        self._places = [places(order) for order in orders]
        self._left = [deque(order.cells) for order in orders]
        self._serving = [0] * len(orders)
        self.broken: dict[int, OrderBroken] = {}
        self.gone = ""

    def take(self, index: int | None) -> Task | None:
        """A cell of this order while it has one, else of the order with the most cells for each slot that serves it.

        None where all that is left is served by as many slots as it has places.
        """
        with self._lock:
            if self.gone:
                return None
            open_orders = [i for i, left in enumerate(self._left) if left and i not in self.broken]
            if not open_orders:
                return None
            if index not in open_orders:
                if index is not None:
                    self._serving[index] -= 1
                open_orders = [i for i in open_orders if self._serving[i] < self._places[i]]
                if not open_orders:
                    return None
                index = max(open_orders, key=lambda i: len(self._left[i]) / (1 + self._serving[i]))
                self._serving[index] += 1
            return Task(index, self._orders[index], self._left[index].popleft())


@dataclass
class Shared:
    """What all slots of a run have in common."""

    engine: Engine
    timeout_s: float
    silence_s: float
    reruns: int
    patience: Patience
    logs: LogStore
    stop: StopSignal
    queue: Queue
    on_event: Callable[[Event], None]
    facts_of: Callable[[Order], Mapping[str, str]]
    unfinished: set[str]
    keep: bool
    outcomes: dict[str, CellOutcome] = field(default_factory=dict)
    trouble: list[BaseException] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def emit(self, event: Event) -> None:
        """One event at a time, so that subscribers need not care for threads."""
        with self.lock:
            if isinstance(event, CellFinished):
                self.unfinished.discard(event.outcome.cell.id)
                if self.keep:
                    self.outcomes[event.outcome.cell.id] = event.outcome
            self.on_event(event)


def run(
    orders: Sequence[Order],
    *,
    engine: Engine,
    jobs: int,
    timeout_s: float,
    silence_s: float = 0.0,
    reruns: int = 0,
    on_event: Callable[[Event], None],
    stop: StopSignal,
    logs: LogStore,
    patience: Patience | None = None,
    facts_of: Callable[[Order], Mapping[str, str]] = lambda _: {},
    places: Callable[[Order], float] = lambda _: math.inf,
    keep: bool = True,
) -> tuple[CellOutcome, ...]:
    """Runs all cells; returns an outcome for each, in the order they came. No worker outlives the call.

    `reruns` is how often a cell with product trouble is run again, to tell flakes; its first outcome stays.
    `silence_s` is how long a cell may say nothing, 0 is as long as it may run.
    `places` is how many workers an order may have at the same time: no more than there are devices for it.
    Without `keep` outcomes go to `on_event` alone, and memory does not grow with the cells that have finished.
    `facts_of` gives what the host knows of an order's environment; it goes into every outcome of that order.
    """
    queue = Queue(orders, places)
    cells = [(index, order, cell) for index, order in enumerate(orders) for cell in order.cells]
    shared = Shared(
        engine=engine,
        timeout_s=timeout_s,
        silence_s=silence_s,
        reruns=reruns,
        patience=patience or Patience(),
        logs=logs,
        stop=stop,
        queue=queue,
        on_event=on_event,
        facts_of=facts_of,
        unfinished={cell.id for _, _, cell in cells},
        keep=keep,
    )
    slots = [threading.Thread(target=Slot(n, shared).work, name=f"slot-{n}") for n in range(min(jobs, len(cells)))]
    try:
        for slot in slots:
            slot.start()
        for slot in slots:
            while slot.is_alive():
                slot.join(POLL_S)  # not for ever at once: signal handlers run in between
    except BaseException:
        stop.kill()
        raise
    finally:
        for slot in slots:
            if slot.ident:
                slot.join()
    if shared.trouble:
        raise shared.trouble[0]
    for index, order, cell in cells:
        if cell.id in shared.unfinished:
            shared.emit(CellFinished(outcome=_without_worker(shared, order, cell, queue.broken.get(index))))
    return tuple(shared.outcomes[cell.id] for _, _, cell in cells) if keep else ()


def _without_worker(shared: Shared, order: Order, cell: Cell, broken: OrderBroken | None) -> CellOutcome:
    """The outcome of a cell that no worker served."""
    if isinstance(broken, CandidateBroken):
        case = CaseResult(name=IMPORT, state=State.FAIL, message=str(broken))
        facts = {**NO_FACTS, **shared.facts_of(order)}
        return CellOutcome(cell=cell, evidence=order.evidence, cases=(case,), environment=facts, ended_at=_now())
    reason = str(broken or shared.queue.gone)
    return CellOutcome(cell=cell, evidence=order.evidence, infra=reason, not_run=not reason)


def taints(found: CellOutcome) -> bool:
    """Whether the worker may serve no other cell: what crashed a process may have reached what all of them share.

    On a device that is so however the process ended: an error sticks to it.
    """
    death = found.death
    return death is not None and bool(death.signal or death.exit_code or found.evidence is Evidence.DEVICE)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Slot:
    """One thread: takes cells, keeps a worker for them, and never leaves one behind."""

    def __init__(self, number: int, shared: Shared) -> None:
        self.number, self.shared = number, shared
        self.index: int | None = None  # of the order that the worker serves
        self.serves: tuple[str, str, str] | None = None  # what `Order.worker` says of it
        self.worker: WorkerHandle | None = None
        self.facts = NO_FACTS
        self.guarded = True  # whether a cell cannot end the worker
        self.busy = False  # with a cell, which a first Ctrl-C lets finish; imports are not worth finishing

    def work(self) -> None:
        queue = self.shared.queue
        try:
            while not self.shared.stop.requested and (task := queue.take(self.index)):
                if task.order.worker != self.serves:
                    self.drop()
                self.index, self.serves = task.index, task.order.worker
                try:
                    found = self.with_reruns(task, self.attempt(task))
                except Stopped:
                    return
                except OrderBroken as error:
                    queue.broken.setdefault(task.index, error)
                    continue
                except EngineGone as error:
                    queue.gone = queue.gone or str(error)
                    return
                self.shared.emit(CellFinished(outcome=found))
        except BaseException as error:  # noqa: BLE001 - raised again by `run`, in the main thread
            self.shared.trouble.append(error)
            self.shared.stop.kill()
        finally:
            self.drop()

    def with_reruns(self, task: Task, first: CellOutcome) -> CellOutcome:
        """The outcome, with what became of the cell each time it was run again."""
        states: list[State] = []
        if outcome.of(first)[0].fault is Fault.PRODUCT:
            for _ in range(self.shared.reruns):
                if self.shared.stop.requested:
                    break
                again = self.attempt(task, attempts_before=first.attempts + len(states))
                states.append(outcome.of(again)[0])
        return replace(first, reruns=tuple(states))

    def attempt(self, task: Task, attempts_before: int = 0) -> CellOutcome:
        """A cell whose worker is lost is tried once more on a fresh one: it may not have been the cell's doing.

        It was where a worker died each time, and a cell can bring that about here.
        """
        reasons: list[str] = []
        by_the_cell = True
        place = ""
        for attempt in range(attempts_before + 1, attempts_before + ATTEMPTS + 1):
            worker = self.worker or self.start(task)
            log = self.shared.logs.open(task.cell.id, attempt)
            self.shared.emit(CellStarted(slot=self.number, cell=task.cell.id, attempt=attempt))
            self.busy = True
            try:
                found = self.follow(worker, task, attempt, log)
                if taints(found):
                    self.drop()
                return replace(found, log=log.place, ended_at=_now())
            except (WorkerLost, ProtocolError, EngineGone) as error:
                reason = self.lost(worker, error)
                reasons.append(reason)
                by_the_cell &= not self.guarded and isinstance(error, WorkerDied | ProtocolError)
                log.write(f"[attnmatrix: the worker was lost: {reason}]\n")
                place = log.place
            finally:
                self.busy = False
                log.close()
        reason = reasons[-1] if len(set(reasons)) == 1 else "; then ".join(reasons)
        return CellOutcome(
            cell=task.cell,
            evidence=task.order.evidence,
            death=Death(worker=reason) if by_the_cell else None,
            infra="" if by_the_cell else f"lost {ATTEMPTS} workers during this cell: {reason}",
            log=place,
            environment=self.facts,
            attempts=ATTEMPTS,
            ended_at=_now(),
        )

    def follow(self, worker: WorkerHandle, task: Task, attempt: int, log: CellLog) -> CellOutcome:
        """Gives a ready worker the cell and listens until it is done, or until both have had their time."""
        timeout_s, cell_id = self.shared.timeout_s, task.cell.id
        cell, evidence = task.cell, task.order.evidence
        wire = {"id": cell_id, "axes": dict(cell.axes), "load": asdict(cell.load), "evidence": evidence.value}
        blank = CellOutcome(cell=cell, evidence=evidence, environment=self.facts, attempts=attempt)
        cases: list[CaseResult] = []
        resolved: dict[str, object] = {}
        started = time.monotonic()
        worker.send({"run": {"cell": wire, "timeout_s": timeout_s, "silence_s": self.shared.silence_s}})
        for message in self.listen(worker, timeout_s + self.shared.patience.grace_s):
            match message:
                case Log(cell=name, text=text) if name == cell_id:
                    log.write(text)
                case Case(cell=name) if name == cell_id and len(cases) < CASES_LIMIT:
                    cases.append(message.result())
                    resolved.update(message.resolved)
                    self.shared.emit(CaseReported(slot=self.number, cell=cell_id, case=cases[-1]))
                case Done(cell=name, duration_s=duration_s) if name == cell_id:
                    death = message.how()
                    return replace(blank, cases=tuple(cases), death=death, duration_s=duration_s, resolved=resolved)
                case _:
                    raise ProtocolError(f"a {type(message).__name__.lower()} message that does not belong to this cell")
        log.write("[attnmatrix: the worker did not end the cell at its time limit and was killed]\n")
        self.drop()
        taken = time.monotonic() - started
        death = Death(timed_out_after_s=taken)
        return replace(blank, cases=tuple(cases), death=death, duration_s=taken, resolved=resolved)

    def listen(self, worker: WorkerHandle, seconds: float) -> Iterator[Message]:
        """What the worker says within that time; ends without a word when the time has passed."""
        until, stop = time.monotonic() + seconds, self.shared.stop
        while (left := until - time.monotonic()) > 0:
            if stop.killed or (stop.requested and not self.busy):
                raise Stopped
            message = worker.receive(min(left, POLL_S))
            if message is not None:
                yield message

    def start(self, task: Task) -> WorkerHandle:
        """A ready worker for the task's order. An engine that is gone, or cannot do it now, gets some time."""
        patience, stop, queue = self.shared.patience, self.shared.stop, self.shared.queue
        lost = ""
        for _ in range(2):  # as with a cell: being lost once may be an accident
            try:
                for attempt in Retrying(
                    retry=retry_if_exception(lambda error: isinstance(error, EngineGone | NotNow) and not queue.gone),
                    stop=stop_after_attempt(patience.engine_tries),
                    wait=wait_exponential(multiplier=patience.engine_wait_s),
                    sleep=stop.pause,
                    reraise=True,
                ):
                    with attempt:
                        if stop.requested:
                            raise Stopped
                        return self.open(task.order)
            except (WorkerLost, ProtocolError) as error:
                lost = str(error)
            except CannotStart as error:
                raise OrderBroken(str(error)) from error
        raise OrderBroken(f"no worker became ready: {lost}")

    def open(self, order: Order) -> WorkerHandle:
        """Starts a worker and waits for its imports."""
        self.shared.emit(WorkerStarting(slot=self.number, environment=order.environment))
        worker = self.worker = self.shared.engine.start(order)
        try:
            return self.await_ready(worker, order)
        except (WorkerLost, ProtocolError) as error:
            raise WorkerLost(self.lost(worker, error)) from error
        except BaseException:
            self.drop()
            raise

    def await_ready(self, worker: WorkerHandle, order: Order) -> WorkerHandle:
        for message in self.listen(worker, self.shared.patience.start_s):
            match message:
                case Ready():
                    versions = message.environment.model_dump()
                    held = _BUILD.sub("", versions["vllm"])
                    if held != order.environment and held and _RELEASE.fullmatch(order.environment):
                        raise OrderBroken(
                            f"the environment for vllm {order.environment} holds vllm {held}: its results would carry "
                            "the wrong name; correct the lock or the image"
                        )
                    self.guarded = message.guarded
                    self.facts = {**NO_FACTS, **versions, **self.shared.facts_of(order), **worker.facts}
                    self.shared.emit(
                        WorkerReady(
                            slot=self.number,
                            environment=order.environment,
                            versions=self.facts,
                            import_s=message.import_s,
                        )
                    )
                    return worker
                case Broken(reason=reason):
                    said = f"the cases cannot be imported in environment {order.environment}: {reason}"
                    if candidate := self.shared.facts_of(order).get("candidate"):
                        raise CandidateBroken(f"{said}\nIt is {candidate}, and that release can be imported.")
                    raise OrderBroken(said)
                case _:
                    raise ProtocolError(f"a {type(message).__name__.lower()} message before it was ready")
        raise OrderBroken(f"no worker was ready within {self.shared.patience.start_s:g} s")

    def lost(self, worker: WorkerHandle, error: Exception) -> str:
        """Why the worker was lost, asked while it still can be; the worker is gone afterwards."""
        try:
            return f"it sent {error}" if isinstance(error, ProtocolError) else worker.exit_status()
        except EngineError as unknown:
            return str(unknown)
        finally:
            self.drop()

    def drop(self) -> None:
        if self.worker:
            self.worker.kill()
        self.worker = None
