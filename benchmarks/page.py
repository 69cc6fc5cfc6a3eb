"""What report.html costs at 10,000 cells: to write, to paint first, to take a keystroke in its filter.

    python benchmarks/page.py [--rounds 5]

The rows are made up (tests/unit/synthetic.py) in the shape of real ones, all of them on the map: thirteen cases for
each cell, and a message of its own for each that is bad. First paint is what the browser says, headless
(`first-contentful-paint`); after it the map stands. A keystroke is timed from its event to the end of the frame that
shows what it did. Medians over the rounds. Needs the extra dev, and chromium.
"""

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT))  # the tests' rows; what follows is found there (E402)

from runner.model import CaseResult, CellResult, State  # noqa: E402
from runner.reports import html  # noqa: E402
from tests.unit import synthetic  # noqa: E402

CELLS = 10_000
AXES = {
    **synthetic.AXES,
    "vllm": ("0.29.0", "0.30.0", "0.31.0", "0.32.0"),
    "backend": synthetic.AXES["backend"][:4],
    "arch": synthetic.AXES["arch"][:6],
}
KEYS = "flashinfer,sm90,sm100;spec_k>=3;load=solo"
PAINT = """() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done([
  performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? NaN, performance.now()]))))"""
WATCH = """() => {
  window.took = [];
  document.getElementById("filter").addEventListener("beforeinput", () => {
    const began = performance.now();
    requestAnimationFrame(() => setTimeout(() => window.took.push(performance.now() - began)));
  });
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    rows = list(islice(made(), CELLS))
    times: dict[str, list[float]] = {name: [] for name in ("render", "first paint", "map stands", "keystroke")}
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder, "report.html")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        for number in range(asked.rounds):
            print(f"round {number + 1} of {asked.rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
            began = time.perf_counter()
            path.write_text(html.render(rows, exit_code=1, title="10,000 cells"))
            times["render"].append((time.perf_counter() - began) * 1000)
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(path.as_uri())
            painted, stands = page.evaluate(PAINT)
            times["first paint"].append(painted)
            times["map stands"].append(stands)
            keys = keystrokes(page)
            times["keystroke"] += keys
            worst = max(worst, *keys)
            page.close()
        size = path.stat().st_size
        browser.close()
    print(f"{len(rows):,} cells, report.html {size / 1e6:.2f} MB (aim: 6); medians of {asked.rounds} rounds, in ms")
    for name, aim in (
        ("render", "4,000 with all reports"),
        ("first paint", "1,000"),
        ("map stands", ""),
        ("keystroke", "100"),
    ):
        print(f"  {name:12}{statistics.median(times[name]):8.0f}{f'   (aim: {aim})' if aim else ''}")
    print(f"  slowest keystroke {worst:.0f}, of {len(times['keystroke'])}")


def keystrokes(page: Page) -> list[float]:
    """Milliseconds of each key of a filter, typed and taken back."""
    page.evaluate(WATCH)
    page.focus("#filter")
    for key in (*KEYS, *["Backspace"] * len(KEYS)):
        page.keyboard.press(key)
        page.wait_for_timeout(20)
    found: list[float] = page.evaluate("window.took")
    return found


def made() -> Iterator[CellResult]:
    draw = random.Random(0)  # noqa: S311 - nothing secret
    for row in synthetic.results(AXES):
        more = tuple(
            CaseResult(name=f"test_number_{number}_of_thirteen", state=State.PASS, duration_s=draw.random() / 10)
            for number in range(13 - len(row.cases))
        )
        cases = tuple(
            replace(case, message=f"{case.message} {row.id} {draw.random()}" * 3) if case.message else case
            for case in row.cases
        )
        yield replace(row, cases=(*cases, *more), duration_s=draw.random())


if __name__ == "__main__":
    main()
