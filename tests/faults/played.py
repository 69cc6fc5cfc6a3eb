"""The runner's command line on cells that need no vLLM: `python -m tests.faults.played ARGUMENTS of runner`.

Everything is the runner's but where the cells run: workers of this Python, or containers of the image that
ATTNMATRIX_PLAYED names, or nodes of the cluster at ATTNMATRIX_PLAYED_RAY, with the cases of tests/fixtures_cases/quick.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

from runner import cli, session
from runner.engines import ray_cluster
from runner.engines.base import Engine
from runner.engines.docker import DockerEngine
from runner.engines.local import LocalEngine
from runner.engines.walls import Walls
from runner.options import EngineName, Machine
from tests.contract.bench import ROOT, WORKER
from tests.ray import cluster

CASES = ROOT / "tests" / "fixtures_cases" / "quick" / "cases"


@contextmanager
def played(on: Machine, _chart: object, _orders: object, run_id: str, _say: object, **_: object) -> Iterator[Engine]:
    """In the place of `machine.open_engine`."""
    engine: Engine
    if address := os.environ.get("ATTNMATRIX_PLAYED_RAY"):
        ray_cluster.connect(address)
        engine = cluster.engine(cases=CASES)
    elif image := os.environ.get("ATTNMATRIX_PLAYED"):
        client = docker.from_env()
        engine = DockerEngine(
            client, image_for=lambda _: image, run_id=run_id, worker=WORKER, cases=CASES, walls=Walls(memory="256m")
        )
    else:
        engine = LocalEngine(python_for=lambda _: Path(sys.executable), worker=WORKER, cases=CASES)
    try:
        yield engine
    finally:
        engine.close()
        if address:
            ray_cluster.disconnect()


if __name__ == "__main__":
    session.open_engine = played  # type: ignore[assignment]
    session.choose = lambda *_: Machine(engine=EngineName.LOCAL, why="played")
    session.facts_of = lambda _: lambda _order: {}  # type: ignore[assignment]
    sys.exit(cli.main(sys.argv[1:]))
