"""What a process per cell costs: the same real cells with and without it, side by side in one run.

    (a) the runner: warm workers that fork for each cell
    (b) `pytest -n 2` over the same cells: one process per worker, no isolation between cells
    (c) a fresh process for each cell, two at a time; measured on a sample, since all would take hours

Wall time over the number of cells, imports included; the median of the rounds. Usage, on an idle machine:

    python benchmarks/isolation.py [--filter EXPR]... [--rounds N] [--sample N]
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROJECT = Path(__file__).parents[1]
RUNNER = [sys.executable, "-m", "runner"]
WORKERS = 2


def timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", action="append", default=[], help="as for the runner; default: the quick tier")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sample", type=int, default=6, help="cells given a fresh process")
    arguments = parser.parse_args()
    selection = [word for each in arguments.filter for word in ("--filter", each)] or ["--tier", "quick"]

    listed = subprocess.run(
        [*RUNNER, "list", "--json", *selection], capture_output=True, text=True, check=True, cwd=PROJECT
    )
    cells = [cell for cell in json.loads(listed.stdout) if not cell["unsupported"]]
    environments = json.loads(
        subprocess.run(
            [*RUNNER, "env", "list", "--json"], capture_output=True, text=True, check=True, cwd=PROJECT
        ).stdout
    )
    python = next(one["python"] for one in environments if one["kind"] == "local" and one["whole"])
    random.seed(0)
    sample = random.sample(cells, min(arguments.sample, len(cells)))

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cells.json"
        file.write_text(json.dumps(cells))
        by_hand = [python, "-m", "pytest", "cases", "--cells", str(file), "-q", "-p", "no:cacheprovider", "--tb=no"]

        def runner() -> None:
            out = Path(tempfile.mkdtemp(dir=folder)) / "run"
            command = [*RUNNER, "--engine", "local", "--jobs", str(WORKERS), "--out", str(out), "-q", *selection]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=False, cwd=PROJECT)

        def xdist() -> None:
            command = [*by_hand, "-n", str(WORKERS), "--rootdir", "cases"]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=False, cwd=PROJECT)

        def fresh() -> None:
            with ThreadPoolExecutor(WORKERS) as pool:
                one = [[*by_hand, "--rootdir", "cases", "--cell", cell["id"]] for cell in sample]
                list(pool.map(lambda command: subprocess.run(command, stdout=subprocess.DEVNULL, cwd=PROJECT), one))

        a, b, c = [], [], []
        for _ in range(arguments.rounds):  # in turn, so that a slow minute of the machine hits all three
            a.append(timed(runner) / len(cells))
            b.append(timed(xdist) / len(cells))
            c.append(timed(fresh) / len(sample))
    per_cell = {"a": statistics.median(a), "b": statistics.median(b), "c": statistics.median(c)}
    print(f"{len(cells)} cells, {WORKERS} workers, median of {arguments.rounds} rounds, wall time per cell:")
    print(f"  (a) runner, a process per cell    {1000 * per_cell['a']:8.1f} ms")
    print(f"  (b) pytest -n {WORKERS}, no isolation   {1000 * per_cell['b']:8.1f} ms")
    print(f"  (c) a fresh process per cell      {1000 * per_cell['c']:8.1f} ms   ({len(sample)} cells)")
    print(f"a / b = {per_cell['a'] / per_cell['b']:.2f}   (aim: at most 1.5)")
    print(f"c / a = {per_cell['c'] / per_cell['a']:.1f}   (aim: at least 30)")


if __name__ == "__main__":
    main()
