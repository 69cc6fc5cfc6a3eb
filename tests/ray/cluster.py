"""A Ray cluster of several nodes on this machine, and engines over it for cells that do as told."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from runner.engines.local import marked
from runner.engines.owner import Owner
from runner.engines.parcel import pack
from runner.model import Order
from tests.contract.bench import CASES, ROOT

MIB = 1 << 20
BYTES_PER_WORKER = 64 * MIB


@contextlib.contextmanager
def started(home: Path, *nodes: dict[str, Any], docker: bool = False, **head: Any) -> Iterator[Any]:
    """A cluster with a head that runs nothing, and these nodes, which keep what they are sent in `home`.

    Unless `docker`, nobody's daemon is used: cells run as processes.
    """
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        add(cluster, home, num_cpus=0, include_dashboard=False, **head)
        for node in nodes:
            add(cluster, home, docker=docker, **node)
        yield cluster
    finally:
        cluster.shutdown()


def add(cluster: Any, home: Path, *, docker: bool = False, **node: Any) -> Any:
    # The last is for its server for those outside, on a machine that is slow.
    variables = {
        "ATTNMATRIX_HOME": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "300",
    }
    if not docker:
        variables["DOCKER_HOST"] = "unix:///there/is/none.sock"
    usual = {"num_cpus": 1, "memory": 4096 * MIB, "object_store_memory": 80 * MIB, "env_vars": variables}
    return cluster.add_node(**{**usual, **node})


def required() -> None:
    """Skips where Ray is not installed; in CI it must be."""
    if not os.environ.get("CI"):
        pytest.importorskip("ray")


def engine(*, cases: Path = CASES, say: Callable[[str], None] = lambda _: None, **options: Any) -> Any:
    """The engine on the cluster that this process has joined, with this Python as every node's environment."""
    from runner.engines.ray import RayEngine

    parcel = pack({"runner": ROOT / "runner", "cases": cases})
    return RayEngine(parcel=parcel, opening_for=plainly, memory=BYTES_PER_WORKER, say=say, **options)


def plainly(order: Order) -> Callable[[Callable[[str], None]], Any]:
    """Goes to a node by value: the node has the runner and the cases, and not these tests."""
    python = sys.executable

    def opening(_say: Callable[[str], None]) -> tuple[AbstractContextManager[Any], Order]:
        import contextlib
        from pathlib import Path

        import runner
        from runner.engines.local import LocalEngine

        place = Path(runner.__file__).parents[1]
        made = LocalEngine(
            python_for=lambda _: Path(python), worker=place / "runner" / "worker.py", cases=place / "cases"
        )
        return contextlib.closing(made), order

    return opening


def workers(home: Path) -> list[tuple[int, Owner]]:
    """The processes of workers that actors with this home have started, each with its actor."""
    found = []
    for pid, mark in marked():
        owner = Owner.parse(mark.rpartition("/")[0])
        with contextlib.suppress(OSError):
            if owner and f"ATTNMATRIX_HOME={home}".encode() in Path(f"/proc/{owner.pid}/environ").read_bytes():
                found.append((pid, owner))
    return found


def actors(home: Path) -> list[int]:
    """The processes of Ray that keep a worker, or would."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"ATTNMATRIX_HOME={home}".encode() in (folder / "environ").read_bytes() and (
                b"ray::Keeper" in (folder / "cmdline").read_bytes()
            ):
                found.append(int(folder.name))
    return found


def wait_until(condition: Callable[[], Any], seconds: float = 20.0) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True
