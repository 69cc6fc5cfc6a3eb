"""A runner to be killed: starts a cell on a cluster, which sleeps, and says so. Arguments: address, folder."""

import sys
from pathlib import Path

from runner.engines import ray_cluster
from runner.model import CellStarted
from tests.contract.bench import Bench
from tests.ray import cluster


def main() -> None:
    address, folder = sys.argv[1:]
    ray_cluster.connect(address)
    bench = Bench(cluster.engine(), Path(folder))
    bench.watch = lambda event: print("started", flush=True) if isinstance(event, CellStarted) else None
    bench.do("sleep_with_a_grandchild", timeout_s=500.0)


main()
