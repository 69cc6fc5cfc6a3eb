"""A runner to be killed: starts a cell that sleeps and says so. Arguments: engine, image, run id, folder."""

import sys
from pathlib import Path

import docker

from runner.engines.docker import DockerEngine
from runner.engines.local import LocalEngine
from runner.engines.walls import Walls
from runner.model import CellStarted
from tests.contract.bench import CASES, WORKER, Bench


def main() -> None:
    name, image, run_id, folder = sys.argv[1:]
    if name == "docker":
        engine = DockerEngine(
            docker.from_env(),
            image_for=lambda _: image,
            run_id=run_id,
            worker=WORKER,
            cases=CASES,
            walls=Walls(memory="256m"),
        )
    else:
        engine = LocalEngine(python_for=lambda _: Path(sys.executable), worker=WORKER, cases=CASES)
    bench = Bench(engine, Path(folder))
    bench.watch = lambda event: print("started", flush=True) if isinstance(event, CellStarted) else None
    bench.do("sleep_with_a_grandchild", timeout_s=500.0)


main()
