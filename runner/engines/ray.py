"""Workers on the nodes of a Ray cluster: an actor for each, which opens the engine of its node.

Imported only where this engine is asked for: Ray is an extra.
"""

import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from runner.engines import keeper
from runner.engines.base import CannotStart, EngineGone, WorkerDied, WorkerLost
from runner.engines.channel import encode
from runner.engines.parcel import Parcel
from runner.messages import Message, ProtocolError, clean, parse
from runner.model import Evidence, Order

READ_S = 1.0
"""How long an actor waits with an empty answer: that often it shows that it is alive."""
SILENCE_S = 8.0
"""Without any answer after which a node counts as lost. Less than `Patience.grace_s`: a cell on a machine that vanished
is tried again elsewhere, and never taken for one that did not keep its time."""
END_S = 5.0

_ARCH = re.compile(r"sm\d+")

ray.cloudpickle.register_pickle_by_value(keeper)


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A living node of the cluster and how many workers it has room for: one per device of an arch, or per CPU."""

    id: str
    name: str
    archs: Mapping[str, int]
    cpus: int
    gpus: int

    def places(self, order: Order) -> int:
        return self.archs.get(order.arch, 0) if order.evidence is Evidence.DEVICE else self.cpus


def nodes(memory: int) -> tuple[Node, ...]:
    """The nodes that are alive; a CPU counts where there are so many bytes of memory for it. EngineGone."""
    with _faults():
        return tuple(_node(entry, memory) for entry in ray.nodes() if entry["Alive"])


def _node(entry: Mapping[str, Any], memory: int) -> Node:
    has = entry["Resources"]
    return Node(
        id=entry["NodeID"],
        name=f"{entry['NodeManagerHostname']} ({entry['NodeID'][:6]})",
        archs={name: int(count) for name, count in has.items() if _ARCH.fullmatch(name)},
        cpus=min(int(has.get("CPU", 0)), int(has.get("memory", 0)) // memory),
        gpus=int(has.get("GPU", 0)),
    )


class RayEngine:
    """Starts workers where the cluster has room.

    `opening_for` makes of an order the function that its node calls, with what to tell progress to, for an engine to
    open and the order to start with it; it travels pickled, and `parcel` holds what it must import.
    """

    name = "ray"

    def __init__(
        self,
        *,
        parcel: Parcel,
        opening_for: Callable[[Order], Callable[[Callable[[str], None]], Any]],
        memory: int,
        say: Callable[[str], None],
    ) -> None:
        self._opening_for, self._memory, self.say = opening_for, memory, say
        self._digest = parcel.digest
        with _faults():
            self._sources = ray.put(parcel.data)  # each node fetches it once
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        self._unfit: dict[tuple[str, tuple[str, str, str]], str] = {}
        self._workers: set[RayWorker] = set()

    def start(self, order: Order) -> "RayWorker":
        worker = RayWorker(self, order)
        with self._lock:
            self._workers.add(worker)
        return worker

    def sweep(self) -> list[str]:
        """Nothing: each node removes what runs left there when it opens its own engine, and tells it as progress."""
        return []

    def close(self) -> None:
        for worker in list(self._workers):
            worker.kill()

    def place(self, order: Order) -> Node:
        """The fitting node with the most room, taken until `leave`; CannotStart with the reasons where none fits."""
        alive = nodes(self._memory)
        with self._lock:
            fit = [node for node in alive if node.places(order) and (node.id, order.worker) not in self._unfit]
            if not fit:
                raise CannotStart(self._why(order, alive))
            best = min(fit, key=lambda node: self._taken[node.id] / node.places(order))
            self._taken[best.id] += 1
        return best

    def leave(self, node: Node) -> None:
        with self._lock:
            self._taken[node.id] -= 1

    def forget(self, worker: "RayWorker") -> None:
        with self._lock:
            self._workers.discard(worker)

    def set_aside(self, node: Node, order: Order, reason: str) -> None:
        """The node is given no more workers for such orders in this run."""
        key = (node.id, order.worker)
        with self._lock:
            known = key in self._unfit
            self._unfit[key] = f"{node.name}: {reason}"
        if not known:
            self.say(f"{node.name} is set aside: {reason}")

    def keeper(self, node: Node, order: Order) -> Any:
        """An actor on the node, perhaps still waiting for its resources; a device is one, for others to see."""
        on_device = order.evidence is Evidence.DEVICE
        opening = ray.cloudpickle.dumps(self._opening_for(replace(order, cells=order.cells[:1])))
        with _faults():
            actor = ray.remote(keeper.Keeper).options(
                num_cpus=0 if on_device else 1,
                num_gpus=1 if on_device and node.gpus else 0,  # without, Ray hides them from the actor
                resources={order.arch: 1} if on_device else {},
                memory=self._memory,
                max_concurrency=3,
                max_restarts=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            return actor.remote(self._sources, self._digest, opening)

    def _why(self, order: Order, alive: tuple[Node, ...]) -> str:
        if reasons := [reason for (_, served), reason in self._unfit.items() if served == order.worker]:
            return f"no node of the cluster can run this: {'; '.join(reasons[:3])}"
        if order.evidence is not Evidence.DEVICE:
            return f"none of the {len(alive)} nodes of the cluster has a CPU and {self._memory >> 30} GiB for a worker"
        has = ", ".join(sorted({arch for node in alive for arch in node.archs})) or "none"
        return f"no node of the cluster offers {order.arch} as a resource; offered: {has}"


class RayWorker:
    """One worker and the actor that keeps it. Until it is ready, it moves on where a node cannot start it."""

    def __init__(self, engine: RayEngine, order: Order) -> None:
        self.facts: Mapping[str, str] = {}
        self._engine, self._order = engine, order
        self._settle()

    def _settle(self) -> None:
        self._node = self._engine.place(self._order)
        self._held = True
        self._news: Iterator[keeper.News] = iter(())
        self._answered = self._opened = False
        self._status = "it is still there"
        try:
            self._keeper = self._engine.keeper(self._node, self._order)
            self._ask()
        except BaseException:
            self._vacate()
            raise

    def _ask(self) -> None:
        with _faults():
            self._reading = self._keeper.read.remote(READ_S)
        self._asked_at = time.monotonic()

    def send(self, message: Mapping[str, Any]) -> None:
        with _faults():
            self._keeper.write.remote(encode(message))  # whether it arrives is what `receive` finds out

    def receive(self, timeout_s: float) -> Message | None:
        until = time.monotonic() + timeout_s
        while True:
            for news in self._news:
                if message := self._take(*news):
                    return message
            if not self._listen(max(0.0, until - time.monotonic())):
                return None

    def exit_status(self) -> str:
        return f"{self._status} (on {self._node.name})"

    def kill(self) -> None:
        self._vacate()
        self._engine.forget(self)

    def _vacate(self) -> None:
        if not self._held:
            return
        self._held = False
        with contextlib.suppress(Exception):
            if self._answered:
                ray.wait([self._keeper.end.remote()], timeout=END_S)
            ray.kill(self._keeper)
        self._engine.leave(self._node)

    def _take(self, kind: str, value: Any) -> Message | None:
        """One piece of news as the message that it is, if it is one; what a node says is checked like any worker's."""
        match kind, value:
            case "line", bytes():
                return parse(value)
            case "note", str():
                self._engine.say(f"{self._node.name}: {clean(value, 500)}")
            case "opened", dict():
                self._opened = True
                self.facts = {clean(str(k), 64): clean(str(v), 300) for k, v in value.items()} | {
                    "machine": self._node.name
                }
            case "failed", str() if not self._opened:
                self._move(clean(value, 1000))
            case "wrong", str():
                raise ProtocolError(clean(value, 500))
            case "died", str():
                self._status = clean(value, 1000)
                raise WorkerDied(self._status)
            case "lost" | "failed", str():
                self._lose(clean(value, 1000))
            case _:
                raise ProtocolError("news that no keeper tells")
        return None

    def _listen(self, timeout_s: float) -> bool:
        """Waits for the actor's next answer; says whether there is one."""
        try:
            with _faults():
                ready, _ = ray.wait([self._reading], timeout=timeout_s)
                if ready:
                    self._news = iter(ray.get(self._reading))
        except RayActorError as error:
            self._dead(f"the node or its actor died: {clean(str(error).strip().splitlines()[-1], 300)}")
            return True
        if ready:
            self._answered = True
            self._ask()
        elif self._answered and time.monotonic() - self._asked_at > SILENCE_S:
            self._dead(f"the node has not answered for {SILENCE_S:g} s")
        return bool(ready)

    def _dead(self, reason: str) -> None:
        self._answered = False
        if self._opened:
            self._lose(reason)
        self._move(reason)

    def _lose(self, status: str) -> None:
        self._status = status
        raise WorkerLost(status)

    def _move(self, reason: str) -> None:
        self._engine.set_aside(self._node, self._order, reason)
        self._vacate()
        self._settle()


@contextlib.contextmanager
def _faults() -> Iterator[None]:
    """An actor's death is for the caller; anything else of Ray's is that the cluster does not answer."""
    try:
        yield
    except RayActorError:
        raise
    except (RayError, ConnectionError, RuntimeError, TimeoutError) as error:
        reason = clean(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__, 300)
        raise EngineGone(f"the Ray cluster does not answer: {reason}") from error
