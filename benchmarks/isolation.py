"""What a process per cell costs: the same real cells with and without it, side by side in one run.

    (a) the runner: warm workers that fork for each cell
    (b) `pytest -n 2 --dist loadgroup` over the same cells: one process per worker, no isolation between cells
    (c) a fresh process for each cell, two at a time; on a sample, since all would take hours
    (d) a fresh container for each cell, two at a time, on the same sample; where a daemon answers and has the image

Each is timed as a whole, imports and all, and once with a single cell: the difference is what the other cells cost.
Medians over the rounds; in each round they take turns. Usage, on an idle machine:

    python benchmarks/isolation.py [--filter EXPR]... [--rounds N] [--sample N]
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runner.engines.docker import INSIDE
from runner.engines.local import FIXED

PROJECT = Path(__file__).parents[1]
RUNNER = [sys.executable, "-m", "runner"]
WORKERS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", action="append", default=[], help="as for the runner; default: the quick tier")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sample", type=int, default=6, help="cells given a fresh process")
    arguments = parser.parse_args()
    selection = [word for each in arguments.filter for word in ("--filter", each)] or ["--tier", "quick"]
    cells = [cell for cell in ask("list", "--json", *selection) if not cell["unsupported"]]
    environments = ask("env", "list", "--json")
    release = cells[0]["axes"]["vllm"]
    whole = [one for one in environments if one["state"] == "whole" and one["release"] == release]
    whole.sort(key=lambda one: float(one["age_s"]))  # the newest is that of the sources as they are
    python = next(f"{one['name']}/bin/python" for one in whole if one["kind"] == "local")
    image = next((one["name"] for one in whole if one["kind"] == "docker"), "")
    random.seed(0)
    sample = random.sample(cells, min(arguments.sample, len(cells)))
    with tempfile.TemporaryDirectory() as folder:
        ways = Ways(Path(folder), python)
        times: dict[str, list[float]] = {name: [] for name in ("a", "a1", "b", "b1", "c", *("d" if image else ""))}
        for number in range(arguments.rounds):
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
            times["a"].append(timed(lambda: ways.runner(selection)))
            times["b"].append(timed(lambda: ways.xdist(cells)))
            times["c"].append(timed(lambda: ways.fresh(sample)))
            if image:
                times["d"].append(timed(lambda: ways.contained(image, sample)))
            times["a1"].append(timed(lambda: ways.runner(["--filter", cells[0]["id"]])))
            times["b1"].append(timed(lambda: ways.xdist(cells[:1])))
    print(table({name: statistics.median(each) for name, each in times.items()}, len(cells), len(sample)))


def table(s: dict[str, float], cells: int, sample: int) -> str:
    """The medians in seconds as milliseconds per cell, and their ratios."""
    whole = {way: s[way] / (cells if way in "ab" else sample) for way in "abcd" if way in s}
    more = {way: (s[way] - s[f"{way}1"]) / (cells - 1) for way in "ab"}
    contained = [
        f"  (d) a container per cell        {1000 * whole['d']:8.1f} {1000 * whole['d']:8.1f}   ({sample} cells)",
        f"d / a = {whole['d'] / whole['a']:.0f}, {whole['d'] / more['a']:.0f}   (aim: at least 100)",
    ]
    return "\n".join(
        [
            f"{cells} cells, {WORKERS} workers; wall time per cell in ms, imports included, and of each further cell:",
            f"  (a) runner, a process per cell  {1000 * whole['a']:8.1f} {1000 * more['a']:8.1f}",
            f"  (b) pytest -n {WORKERS}, no isolation {1000 * whole['b']:8.1f} {1000 * more['b']:8.1f}",
            f"  (c) a fresh process per cell    {1000 * whole['c']:8.1f} {1000 * whole['c']:8.1f}   ({sample} cells)",
            f"a / b = {whole['a'] / whole['b']:.2f}, {more['a'] / more['b']:.2f}   (aim: at most 1.25 in all)",
            f"c / a = {whole['c'] / whole['a']:.0f}, {whole['c'] / more['a']:.0f}   (aim: at least 30)",
            *(contained if "d" in whole else ()),
        ]
    )


class Ways:
    """The three ways to run cells; verdicts are not looked at."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.by_hand = [python, "-m", "pytest", "cases", "-q", "-p", "no:cacheprovider", "--tb=no"]

    def runner(self, selection: Sequence[str]) -> None:
        out = Path(tempfile.mkdtemp(dir=self.folder)) / "run"
        quietly([*RUNNER, "--engine", "local", "--jobs", str(WORKERS), "--out", str(out), "-q", *selection])

    def xdist(self, cells: Sequence[dict[str, Any]]) -> None:
        quietly([*self.by_hand, self.file(cells), "-n", str(WORKERS), "--dist", "loadgroup"])

    def fresh(self, cells: Sequence[dict[str, Any]]) -> None:
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(lambda cell: quietly([*self.by_hand, self.file([cell])]), cells))

    def contained(self, image: str, cells: Sequence[dict[str, Any]]) -> None:
        mounts = [f"--volume={PROJECT}/cases:{INSIDE}/cases:ro", f"--volume={self.folder}:{self.folder}:ro"]
        walls = [
            "--network=none",
            "--read-only",
            "--cap-drop=ALL",
            "--tmpfs=/tmp:exec",
            "--env=HOME=/tmp",
            "--workdir=/attnmatrix",
        ]
        command = ["docker", "run", "--rm", *walls, *mounts, image, "python3", *self.by_hand[1:]]
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(lambda cell: quietly([*command, self.file([cell])]), cells))

    def file(self, cells: Sequence[dict[str, Any]]) -> str:
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".json", delete=False) as file:
            json.dump(list(cells), file)
        for path in (self.folder, Path(file.name)):
            path.chmod(0o755)  # for the user of a container
        return f"--cells={file.name}"


def ask(*words: str) -> Any:
    done = subprocess.run([*RUNNER, *words], capture_output=True, text=True, check=True, cwd=PROJECT)
    return json.loads(done.stdout)


def quietly(command: Sequence[str]) -> None:
    """All three get what the runner sets for its workers (huge pages, one thread): only isolation is compared."""
    env = {**os.environ, **FIXED}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT, env=env)
    if done.returncode not in (0, 1):  # green or red: all cells ran
        said = done.stdout[-2000:] + done.stderr[-2000:]
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{said}")


def timed(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
