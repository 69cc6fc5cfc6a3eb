"""What this machine runs cells on: the choice of an engine, and the engine itself, ready for a plan."""

import contextlib
import os
import platform
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import docker

from runner import devices, driver_log
from runner.driver_log import DriverLog
from runner.engines import ray_cluster
from runner.engines.base import Engine
from runner.engines.docker import DockerEngine
from runner.engines.leased import LeasedEngine
from runner.engines.local import LocalEngine
from runner.engines.parcel import pack
from runner.environments import daemon, held, travelling
from runner.environments.image import CUDA_REPOSITORY, ensure_image
from runner.environments.recipe import CUDA_IMAGE, cuda_lock, digest, recipe_for, shipped
from runner.environments.venv import ensure_local
from runner.errors import MachineError, UsageError
from runner.leases import Leases
from runner.matrix import Matrix
from runner.model import Cell, Evidence, Order
from runner.options import EngineName, Machine, Obtained
from runner.plan import Plan, make_plan

WORKER = Path(__file__).with_name("worker.py")
SHIPPED = ("cases", "containers", "plugin")
"""What a node of a cluster is sent besides the runner."""
CUDA_PYTHON = "ATTNMATRIX_CUDA_PYTHON"
"""Names the Python of an environment for this machine's GPU, made by containers/on-a-gpu.sh: it has vLLM for CUDA."""
BYTES_PER_WORKER = 2 << 30
"""What a warm worker and the cell it forked may take: 0.6 GB of imports, and the buffers of a large deployment."""

CELLS_PER_WORKER = 24
"""Metadata cells, of 0.15 s each, that one worker judges before a second one is ready. Other cells take seconds."""

CLUSTER_START_S = 7200.0
"""A node of a cluster may have to download and unpack its environment first, or to wait for another one's job."""

Say = Callable[[str], None]
Require = Callable[[Mapping[str, Collection[str]]], None]


def choose(engine: EngineName, address: str = "auto") -> Machine:
    """The engine asked for, or Docker where a daemon answers; MachineError where the one asked for cannot be had.

    `address` is that of the Ray cluster, where that is the engine.
    """
    if engine is not EngineName.AUTO:
        return KINDS[engine].found(address)
    found = daemon.examine()
    if found.answers:
        return _with_gpus(EngineName.DOCKER, f"a Docker daemon answers (version {found.version})")
    return Machine(engine=EngineName.LOCAL, why=f"Docker: {found.trouble}")


def _local(_address: str) -> Machine:
    if CUDA_PYTHON in os.environ:
        return _with_gpus(EngineName.LOCAL, "as asked")
    return Machine(engine=EngineName.LOCAL, why="as asked")


def _docker(_address: str) -> Machine:
    found = daemon.examine()
    if not found.answers:
        raise MachineError(f"--engine docker: {found.trouble}: {found.advice}")
    return _with_gpus(EngineName.DOCKER, "as asked")


def _with_gpus(engine: EngineName, why: str) -> Machine:
    """The engine with the GPUs of this machine, or why there is none."""
    gpus = devices.discover()
    seen = ", ".join(sorted({device.arch for device in gpus.devices})) or f"none ({gpus.reason})"
    return Machine(engine=engine, why=f"{why}; GPUs: {seen}", devices=gpus.devices)


def _cluster(address: str) -> Machine:
    """What the nodes of a Ray cluster offer, which this process has joined then."""
    ray_cluster.connect(address)
    from runner.engines import ray  # not before: Ray is an extra, and takes its time

    nodes = ray.nodes(BYTES_PER_WORKER)
    archs: Counter[str] = sum((Counter(node.archs) for node in nodes), Counter())
    cpus = sum(node.cpus for node in nodes)
    seen = ", ".join(f"{count} {arch}" for arch, count in sorted(archs.items())) or "no GPU is offered as a resource"
    why = f"{len(nodes)} nodes at {address}, {cpus} workers without a GPU; {seen}"
    return Machine(engine=EngineName.RAY, why=why, elsewhere=archs, cpus=cpus, start_s=CLUSTER_START_S)


def planned(cells: Sequence[Cell], on: Machine, wanted: Obtained, seed: int = 0) -> Plan:
    """What a run would do here, with the evidence that is wanted of it."""
    match wanted:
        case Obtained.BEST:
            return make_plan(cells, device_archs=on.device_archs, seed=seed)
        case Obtained.DEVICE:
            named = on.engine is not EngineName.LOCAL or CUDA_PYTHON in os.environ
            why = on.why if named else f"without Docker, cells use one where {CUDA_PYTHON} names a Python for it"
            return make_plan(cells, device_archs=on.device_archs, seed=seed, device_only=why)
        case Obtained.EMULATED:
            return make_plan(cells, device_archs=frozenset(), seed=seed)


def worth_starting(orders: Sequence[Order]) -> int:
    """Workers that save the time that each takes to import vLLM: some 8 s, in which another has judged many a cell."""
    most = (-(-len(order.cells) // (CELLS_PER_WORKER if order.case == "metadata" else 1)) for order in orders)
    return max(1, sum(most))


def default_jobs() -> int:
    """One worker per core, and no more than memory holds."""
    cores = len(os.sched_getaffinity(0))
    available = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    memory = int(available[1]) * 1024 if available else BYTES_PER_WORKER
    return max(1, min(cores, memory // BYTES_PER_WORKER))


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """What an engine is opened for."""

    on: Machine
    chart: Matrix
    orders: tuple[Order, ...]
    run_id: str
    say: Say
    log: Path | None = None
    """The folder into which what the driver says of GPUs goes too."""
    require: Require = lambda _: None
    """Is told the attention backends of each environment whose check has told them, before a worker starts."""


def open_engine(
    on: Machine,
    chart: Matrix,
    orders: tuple[Order, ...],
    run_id: str,
    say: Say,
    log: Path | None = None,
    require: Require = lambda _: None,
) -> AbstractContextManager[Engine]:
    """The engine with the environments of all orders built; whatever it started is gone afterwards."""
    opening = Opening(on=on, chart=chart, orders=orders, run_id=run_id, say=say, log=log, require=require)
    return KINDS[on.engine].opened(opening)


@contextmanager
def _open_local(wanted: Opening) -> Iterator[Engine]:
    chart, orders, say = wanted.chart, wanted.orders, wanted.say
    pythons = {(order.environment, order.evidence): local_python(chart, order, say) for order in orders}
    each = {order.environment: order for order in orders}
    wanted.require({name: local_backends(chart, order, say) for name, order in each.items()})

    def python_for(order: Order) -> Path:
        return pythons[order.environment, order.evidence]

    with _leased(wanted, LocalEngine(python_for=python_for, worker=WORKER, cases=shipped("cases"))) as engine:
        yield engine


@contextmanager
def _open_docker(wanted: Opening) -> Iterator[Engine]:
    chart, orders, say = wanted.chart, wanted.orders, wanted.say
    with contextlib.closing(daemon.connect()) as client:
        images = {(order.environment, order.evidence): docker_image(client, chart, order, say) for order in orders}

        def image_for(order: Order) -> str:
            return images[order.environment, order.evidence]

        made = DockerEngine(client, image_for=image_for, run_id=wanted.run_id, worker=WORKER, cases=shipped("cases"))
        with _leased(wanted, made) as engine:
            yield engine


@contextmanager
def _leased(wanted: Opening, engine: Engine) -> Iterator[Engine]:
    """The engine with a lease of a GPU for each worker that has one, until it is closed."""
    devices_here = wanted.on.devices
    heard = DriverLog(file=wanted.log / driver_log.NAME if wanted.log else None, say=wanted.say)
    if devices_here:
        engine = LeasedEngine(engine, Leases(devices_here), heard)
    try:
        with driver_log.watched(devices_here, heard):
            yield engine
    finally:
        engine.close()


@contextmanager
def _open_cluster(wanted: Opening) -> Iterator[Engine]:
    """The engine of the cluster that was joined; each node makes its environments when it is first given an order."""
    from runner.engines.ray import RayEngine

    run_id = wanted.run_id
    chart, files = travelling.packed(wanted.chart, {order.environment for order in wanted.orders})
    parcel = pack({"runner": Path(__file__).parent, **{name: shipped(name) for name in SHIPPED}, **files})
    try:
        engine = RayEngine(
            parcel=parcel,
            opening_for=lambda order: partial(open_here, travelling.alone(chart, order.environment), order, run_id),
            memory=BYTES_PER_WORKER,
            say=wanted.say,
        )
        try:
            yield engine
        finally:
            engine.close()
    finally:
        ray_cluster.disconnect()


@dataclass(frozen=True, slots=True)
class Kind:
    """An engine by its name: what it finds here, given the address of a cluster, and how it is opened."""

    found: Callable[[str], Machine]
    opened: Callable[[Opening], AbstractContextManager[Engine]]


KINDS: Mapping[EngineName, Kind] = {
    EngineName.LOCAL: Kind(_local, _open_local),
    EngineName.DOCKER: Kind(_docker, _open_docker),
    EngineName.RAY: Kind(_cluster, _open_cluster),
}
"""Every engine but auto, which is one of these."""


def open_here(chart: Matrix, order: Order, run_id: str, say: Say) -> tuple[AbstractContextManager[Engine], Order]:
    """On a node: its own engine for an order, Docker where a daemon answers there, and the order."""
    on = choose(EngineName.AUTO)
    if on.engine is EngineName.LOCAL:
        on = replace(choose(EngineName.LOCAL), why=on.why)
    if order.evidence is Evidence.DEVICE and order.arch not in on.device_archs:
        raise MachineError(f"the node offers {order.arch} as a resource, and has no such GPU: {on.why}")
    here = travelling.unpacked(chart, Path(__file__).parents[1])
    return open_engine(on, here, (order,), run_id, say), order


def facts_of(chart: Matrix) -> Callable[[Order], dict[str, str]]:
    """What results say of where an order ran, besides what its worker says."""
    cases = digest(shipped("cases"), WORKER)

    def facts(order: Order) -> dict[str, str]:
        about = {"cases_digest": cases, "machine": platform.node()}
        if order.evidence is not Evidence.DEVICE:  # what a device's is made of, it says itself
            made = recipe_for(chart, order.environment)
            about |= {"recipe_digest": made.digest, "hashes": held.said(made.unheld)}
        if candidate := chart.environments[order.environment].candidate:
            about["candidate"] = str(candidate)
        return about

    return facts


def unheld(chart: Matrix, plan: Plan) -> list[str]:
    """What is to be said of environments that cells are to run in, and that are not held to hashes."""
    ours = (one for one in plan.planned if one.runs and one.evidence is not Evidence.DEVICE)
    recipes = []
    for release in dict.fromkeys(str(one.cell.axes["vllm"]) for one in ours):
        with suppress(UsageError):  # that it cannot be made is said where it is to be made
            recipes.append(recipe_for(chart, release))
    return [said for one in recipes if (said := held.note(one.title, one.unheld))]


def local_python(chart: Matrix, order: Order, say: Say) -> Path:
    """The Python of an order's local environment, which is built where it is not there; one for a GPU is named."""
    if order.evidence is Evidence.DEVICE:
        python = Path(os.environ[CUDA_PYTHON])
        if not python.is_file():
            raise MachineError(f"{CUDA_PYTHON} names {python}, which is not there: containers/on-a-gpu.sh makes one")
        return python
    return ensure_local(recipe_for(chart, order.environment), say=say).python


def local_backends(chart: Matrix, order: Order, say: Say) -> tuple[str, ...]:
    """The attention backends of an order's local environment; none where nobody knows.

    That is so of one that was made by hand, and of a candidate, which may add some: its cells find out.
    """
    if order.evidence is Evidence.DEVICE or chart.environments[order.environment].candidate:
        return ()
    return ensure_local(recipe_for(chart, order.environment), say=say).backends


def docker_image(client: docker.DockerClient, chart: Matrix, order: Order, say: Say) -> str:
    """The name of an order's image, which is built where it is not there.

    One for a GPU may be named. Where no lock ships for it, one made by hand is taken; where that is missing, its cells
    end as `infra`.
    """
    on_device = order.evidence is Evidence.DEVICE
    if on_device and (named := os.environ.get(CUDA_IMAGE)):
        return named
    if on_device and cuda_lock(chart, order.environment) is None:
        return f"{CUDA_REPOSITORY}:{order.environment}"
    return ensure_image(client, recipe_for(chart, order.environment, cuda=on_device), say=say).tag
