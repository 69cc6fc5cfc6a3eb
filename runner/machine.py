"""What this machine runs cells on: the choice of an engine, and the engine itself, ready for a plan."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

from runner import devices
from runner.engines.base import Engine
from runner.engines.docker import DockerEngine
from runner.engines.leased import LeasedEngine
from runner.engines.local import LocalEngine
from runner.environments import daemon
from runner.environments.image import ensure_image
from runner.environments.recipe import digest, recipe_for, shipped
from runner.environments.venv import ensure_local
from runner.errors import MachineError
from runner.leases import Leases
from runner.matrix import Matrix
from runner.model import Evidence, Order
from runner.options import EngineName, Machine

WORKER = Path(__file__).with_name("worker.py")
CUDA_PYTHON = "ATTNMATRIX_CUDA_PYTHON"
"""Names the Python of an environment for this machine's GPU, made by containers/on-a-gpu.sh: it has vLLM for CUDA."""
BYTES_PER_WORKER = 2 << 30
"""What a warm worker and the cell it forked may take: 0.6 GB of imports, and the buffers of a large deployment."""

Say = Callable[[str], None]


def choose(engine: EngineName) -> Machine:
    """The engine asked for, or Docker where a daemon answers; MachineError where the one asked for cannot be had."""
    if engine is EngineName.LOCAL:
        return _with_gpus(engine, "as asked") if CUDA_PYTHON in os.environ else Machine(engine=engine, why="as asked")
    found = daemon.examine()
    if found.answers:
        why = "as asked" if engine is EngineName.DOCKER else f"a Docker daemon answers (version {found.version})"
        return _with_gpus(EngineName.DOCKER, why)
    if engine is EngineName.DOCKER:
        raise MachineError(f"--engine docker: {found.trouble}: {found.advice}")
    return Machine(engine=EngineName.LOCAL, why=f"Docker: {found.trouble}")


def _with_gpus(engine: EngineName, why: str) -> Machine:
    """The engine with the GPUs of this machine, or why there is none."""
    gpus = devices.discover()
    seen = ", ".join(sorted({device.arch for device in gpus.devices})) or f"none ({gpus.reason})"
    return Machine(engine=engine, why=f"{why}; GPUs: {seen}", devices=gpus.devices)


def default_jobs() -> int:
    """One worker per core, and no more than memory holds."""
    cores = len(os.sched_getaffinity(0))
    available = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    memory = int(available[1]) * 1024 if available else BYTES_PER_WORKER
    return max(1, min(cores, memory // BYTES_PER_WORKER))


@contextmanager
def open_engine(on: Machine, chart: Matrix, orders: tuple[Order, ...], run_id: str, say: Say) -> Iterator[Engine]:
    """The engine with the environments of all orders built; whatever it started is gone afterwards."""
    cases = shipped("cases")
    engine: Engine
    client = None
    if on.engine is EngineName.LOCAL:
        pythons = {(order.environment, order.evidence): local_python(chart, order, say) for order in orders}

        def python_for(order: Order) -> Path:
            return pythons[order.environment, order.evidence]

        engine = LocalEngine(python_for=python_for, worker=WORKER, cases=cases)
    else:
        client = daemon.connect()
        images = {(order.environment, order.evidence): docker_image(client, chart, order, say) for order in orders}

        def image_for(order: Order) -> str:
            return images[order.environment, order.evidence]

        engine = DockerEngine(client, image_for=image_for, run_id=run_id, worker=WORKER, cases=cases)
    if on.devices:
        engine = LeasedEngine(engine, Leases(on.devices))
    try:
        yield engine
    finally:
        engine.close()
        if client:
            client.close()


def facts_of(chart: Matrix) -> Callable[[Order], dict[str, str]]:
    """What results say of where an order ran, besides what its worker says."""
    cases = digest(shipped("cases"), WORKER)

    def facts(order: Order) -> dict[str, str]:
        about = {"cases_digest": cases}
        if order.evidence is not Evidence.DEVICE:  # what a device's environment is made of is not ours
            about["recipe_digest"] = recipe_for(chart, order.environment).digest
        if candidate := chart.environments[order.environment].candidate:
            about["candidate"] = str(candidate)
        return about

    return facts


def local_python(chart: Matrix, order: Order, say: Say) -> Path:
    """The Python of an order's local environment, which is built where it is not there; one for a GPU is named."""
    if order.evidence is Evidence.DEVICE:
        python = Path(os.environ[CUDA_PYTHON])
        if not python.is_file():
            raise MachineError(f"{CUDA_PYTHON} names {python}, which is not there: containers/on-a-gpu.sh makes one")
        return python
    return ensure_local(recipe_for(chart, order.environment), say=say).python


def docker_image(client: docker.DockerClient, chart: Matrix, order: Order, say: Say) -> str:
    """The name of an order's image, which is built where it is not there.

    One for a GPU is made by hand, see containers/cuda.Dockerfile; where it is missing, its cells end as `infra`.
    """
    if order.evidence is Evidence.DEVICE:
        return os.environ.get("ATTNMATRIX_CUDA_IMAGE", f"attnmatrix-cuda:{order.environment}")
    return ensure_image(client, recipe_for(chart, order.environment), say=say).tag
