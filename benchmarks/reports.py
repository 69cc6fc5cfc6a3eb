"""What the reports of a large run cost: each on made-up results, and all of them together.

    python benchmarks/reports.py [--cells 10000] [--noise 0.0]

The cells have the shape of the shipped matrix and real words (tests/unit/synthetic.py). With `--noise 0.2` a fifth of
all cells fails at random, so that nearly each of them is a pattern of its own: the worst case for what finds patterns.
"""

import argparse
import importlib
import importlib.util
import io
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rich.console import Console

from runner.compare import compare
from runner.model import CellResult, State, Verdict
from runner.reports import comparison, ctrf, files, junit, markdown, prometheus, terminal
from runner.results import to_json
from tests.unit import synthetic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--noise", type=float, default=0.0)
    asked = parser.parse_args()
    rows = made(asked.cells, asked.noise)
    red = sum(row.state.bad for row in rows)
    print(f"{len(rows):,} cells, {red:,} red")
    screen = Console(file=io.StringIO(), width=120)
    ways: dict[str, Callable[[], object]] = {
        "results.json": lambda: to_json(rows),
        "report.md": lambda: markdown.render(rows, exit_code=1),
        "junit.xml": lambda: junit.render(rows),
        "ctrf.json": lambda: ctrf.render(rows),
        "metrics.prom": lambda: prometheus.render(rows, exit_code=1),
        "terminal": lambda: terminal.show(screen, rows, exit_code=1),
        "compare": lambda: comparison.show(screen, compare(rows, after(rows)), title="a to b"),
    }
    with tempfile.TemporaryDirectory() as folder:
        if importlib.util.find_spec("runner.reports.html"):
            html = importlib.import_module("runner.reports.html")
            ways["report.html"] = lambda: html.write(Path(folder), rows, exit_code=1, title="made up")
        for name, way in ways.items():
            print(f"{name:<14} {timed(way):6.2f} s")
        seconds = timed(lambda: files.write(Path(folder), rows, exit_code=1))
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6
    print(f"all files      {seconds:6.2f} s, {size:.1f} MB")


def made(cells: int, noise: float) -> list[CellResult]:
    """More chunks and releases than the matrix has, cut at the number asked for."""
    axes = {**synthetic.AXES, "vllm": ("0.30.0", "0.31.0", "0.32.0"), "chunk": (64, 1024, 2048, 8192)}
    chance = random.Random(1)  # noqa: S311 - no secret
    rows = [row for row, _ in zip(synthetic.results(axes), range(cells), strict=False)]
    return [
        replace(row, state=State.FAIL, verdict=Verdict.FAIL, overflow=(), cases=()) if chance.random() < noise else row
        for row in rows
    ]


def after(rows: list[CellResult]) -> list[CellResult]:
    """A tenth of the red cells passes, in one pattern and a few exceptions."""
    fixed = [row.axes["arch"] == "sm90" and row.axes["spec_k"] != 3 for row in rows]
    return [
        replace(row, state=State.PASS, overflow=(), cases=()) if is_fixed and row.state.bad else row
        for row, is_fixed in zip(rows, fixed, strict=True)
    ]


def timed(way: Callable[[], object]) -> float:
    """Seconds of processor: what the clock says on a machine that does nothing else."""
    began = time.process_time()
    way()
    return time.process_time() - began


if __name__ == "__main__":
    main()
