"""How many of the same cells had each verdict in earlier runs: the small lines beside the totals."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner import results
from runner.model import CellResult, Verdict
from runner.outcome import totals

RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{4,}")
MOST_RUNS = 12
MOST_BYTES = 30_000_000
"""What is read of neighbours at all: reports are not to take longer than the run."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """One earlier run: its name, and how many of its cells had each verdict."""

    name: str
    counts: Mapping[Verdict, int]


@dataclass(frozen=True, slots=True)
class Line:
    """A verdict over the runs, oldest first and this one last, and the points of its line in a box of 72 by 16."""

    verdict: Verdict
    numbers: tuple[int, ...]
    points: str


def neighbours(run: Path, rows: Sequence[CellResult]) -> tuple[Earlier, ...]:
    """The runs beside this one that began before it and had the very same cells, oldest first.

    Runs of other cells would draw a line that says nothing. One that cannot be read is no earlier run.
    """
    ids, name = {row.id for row in rows}, run.resolve().name
    if not RUN_ID.fullmatch(name):
        return ()
    try:
        beside = sorted(
            path for path in run.resolve().parent.iterdir() if RUN_ID.fullmatch(path.name) and path.name < name
        )
    except OSError:
        return ()
    found: list[Earlier] = []
    left = MOST_BYTES
    for path in reversed(beside):
        try:
            left -= (path / results.NAME).stat().st_size
            if left < 0 or len(found) == MOST_RUNS:
                break
            verdicts = {row["id"]: Verdict(row["verdict"]) for row in json.loads((path / results.NAME).read_bytes())}
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if set(verdicts) == ids:
            found.append(Earlier(path.name, Counter(verdicts.values())))
    return tuple(reversed(found))


def lines(rows: Sequence[CellResult], history: Sequence[Earlier]) -> dict[Verdict, Line]:
    """For each verdict of this run or an earlier one; none where there is no earlier run."""
    if not history:
        return {}
    counts = [*(earlier.counts for earlier in history[-MOST_RUNS:]), totals(rows, planned=len(rows))]
    verdicts = [verdict for verdict in Verdict if any(count.get(verdict) for count in counts)]
    return {verdict: _line(verdict, [count.get(verdict, 0) for count in counts]) for verdict in verdicts}


def _line(verdict: Verdict, numbers: Sequence[int]) -> Line:
    low, high = min(numbers), max(numbers)
    step = 68 / (len(numbers) - 1)
    heights = [8 if high == low else 14 - 12 * (number - low) / (high - low) for number in numbers]
    points = " ".join(f"{2 + i * step:.1f},{height:.1f}" for i, height in enumerate(heights))
    return Line(verdict, tuple(numbers), points)
