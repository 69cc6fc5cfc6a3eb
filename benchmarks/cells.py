"""What an emulated cell costs with all its cases: medians per backend and per case, over a sample of default cells.

    python benchmarks/cells.py [--cells 120] [--jobs 2]

The sample is spread evenly over the default cells of vLLM 0.32.0, and one worker per core runs it, as in a run. Time is
the cell's own, from its fork to its end (`duration_s` in results.json): imports are not in it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=120)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    runner = [sys.executable, "-m", "runner"]
    listed = subprocess.run([*runner, "list", "--json"], check=True, capture_output=True, text=True).stdout
    ids = [row["id"] for row in json.loads(listed) if not row["unsupported"]]
    sample = ids[:: max(len(ids) // asked.cells, 1)]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "run")
        command = [*runner, "--engine", "local", "-q", "--jobs", str(asked.jobs), "--out", str(out)]
        subprocess.run([*command, "--filter", ",".join(sample)], check=False, stdout=subprocess.DEVNULL)
        rows = json.loads((out / "results.json").read_text())
    print(table(rows))


def table(rows: list[dict[str, Any]]) -> str:
    """Milliseconds: median and 90th percentile of a cell, by backend; then of each case in the cells that it judges."""
    cells, cases = defaultdict(list), defaultdict(list)
    for row in rows:
        cells["every backend"].append(row["duration_s"] * 1e3)
        cells[row["axes"]["backend"]].append(row["duration_s"] * 1e3)
        for case in row["cases"]:
            cases[case["name"]].append(case["duration_s"] * 1e3)
    lines = ["| | cells | median ms | 90% ms |", "| --- | ---: | ---: | ---: |"]
    by_cost = sorted(cases.items(), key=lambda item: -statistics.median(item[1]))
    for name, times in [*cells.items(), *by_cost]:
        tenths = statistics.quantiles(times, n=10) if len(times) > 1 else times * 9
        lines.append(f"| {name} | {len(times)} | {statistics.median(times):.0f} | {tenths[8]:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
