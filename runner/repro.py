"""The one command that shows a cell's result again, without the runner: plain pytest inside the cell's environment."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from runner import matrix, output, select
from runner import plan as planning
from runner.engines.base import CannotStart
from runner.engines.docker import INSIDE, WALLS, has_cdi
from runner.engines.local import FIXED, environment, told
from runner.engines.walls import gpu_for_command_line
from runner.environments import daemon
from runner.environments.recipe import shipped
from runner.errors import MachineError, UsageError
from runner.leases import Leases
from runner.machine import choose, docker_image, local_python
from runner.model import Evidence, Order
from runner.options import EngineName, Machine

CELLS = Path(".runner/repro")
SANITIZER = ("compute-sanitizer", "--target-processes", "all", "--error-exitcode", "1")
"""Of the CUDA toolkit, where the command runs: on this machine, or in the image."""


def run(cell_id: str, *, chart: matrix.Matrix, engine: EngineName, seed: int = 0, sanitize: str = "") -> int:
    """Print the command and run it; returns pytest's exit code: 0 passed, 1 failed.

    `sanitize` names a tool of NVIDIA's compute-sanitizer, under which a cell on a device then runs.
    """
    cells = [cell for cell in select.select(chart, filters=[cell_id]) if cell.id == cell_id]
    if not cells:
        raise UsageError(f"{cell_id!r} is no id of a cell: give one as `runner list` prints it")
    if cells[0].unsupported:
        raise UsageError(f"{cell_id}: a rule of the matrix excludes this cell: {cells[0].unsupported}")
    if engine is EngineName.RAY:
        raise UsageError("--engine ray: a cell is shown again on one machine: run this command on a node of its arch")
    on = choose(engine)
    plan = planning.make_plan(cells, device_archs=on.device_archs, seed=seed)
    file = (CELLS / f"{cell_id}.json").absolute()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(planning.to_json(plan))
    (order,) = plan.orders
    if sanitize and order.evidence is not Evidence.DEVICE:
        raise UsageError(
            f"{cell_id}: its evidence is {order.evidence.value} here: compute-sanitizer looks at kernels on a GPU"
        )
    under = [*SANITIZER, "--tool", sanitize] if sanitize else []
    with _lease(on, order) as leased:
        command = _command(on.engine, chart, leased, file, cell_id, under)
        if candidate := chart.environments[order.environment].candidate:
            output.note(f"site-packages/vllm/ in what follows is a copy of {candidate}")
        output.emit(shlex.join(command))
        sys.stdout.flush()
        env = {**environment(), "COLUMNS": os.environ.get("COLUMNS", "120")} if on.engine is EngineName.LOCAL else None
        return subprocess.run(command, check=False, env=env).returncode


@contextmanager
def _lease(on: Machine, order: Order) -> Iterator[Order]:
    """The order with a GPU of its own where it is for one, as a run's worker has it."""
    if order.evidence is not Evidence.DEVICE:
        yield order
        return
    try:
        lease = Leases(on.devices).take(order.arch)
    except CannotStart as error:
        raise MachineError(str(error)) from error
    try:
        yield replace(order, device=lease.device.uuid)
    finally:
        lease.give_back()


def _command(
    engine: EngineName, chart: matrix.Matrix, order: Order, file: Path, cell_id: str, under: Sequence[str]
) -> list[str]:
    match engine:
        case EngineName.LOCAL:
            python = local_python(chart, order, output.note)
            inside = _pytest(shipped("cases"), file, cell_id, order.seed)
            return ["env", *(f"{name}={value}" for name, value in told(order).items()), *under, str(python), *inside]
        case EngineName.DOCKER:
            client = daemon.connect()
            image = docker_image(client, chart, order, output.note)
            gpu = gpu_for_command_line(order, cdi=has_cdi(client, order))
            inside = _pytest(f"{INSIDE}/cases", f"{INSIDE}/cells.json", cell_id, order.seed)
            return [*_container(file, told(order)), *gpu, image, *under, "python3", *inside]
        case _:
            raise UsageError(f"--engine {engine}: nobody has said how it shows a cell again")


def _pytest(cases: Path | str, cells: Path | str, cell_id: str, seed: int) -> list[str]:
    options = ["-p", "no:cacheprovider", "--rootdir", str(cases), "-rA", "--tb=short"]
    return ["-m", "pytest", str(cases), *options, f"--cells={cells}", f"--cell={cell_id}", f"--seed={seed}"]


def _container(cells: Path, told: Mapping[str, str]) -> list[str]:
    """`docker run` with the walls that a worker's container has."""
    mounts = [f"{shipped('cases').resolve()}:{INSIDE}/cases:ro", f"{cells}:{INSIDE}/cells.json:ro"]
    volumes = [word for mount in mounts for word in ("--volume", mount)]
    # HOME is where caches go; a terminal's width is for pytest
    given = {**FIXED, **told, "HOME": "/tmp", "COLUMNS": os.environ.get("COLUMNS", "120")}  # noqa: S108 - in the container
    variables = [f"--env={name}={value}" for name, value in given.items()]
    return ["docker", "run", "--rm", *WALLS.for_command_line(), *volumes, *variables, f"--workdir={INSIDE}"]
