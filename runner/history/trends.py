"""What many runs say together: counts of verdicts over time, the slowest cells. Pure."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from runner.history.questions import newest_of_each
from runner.history.records import Record, distinct, oldest_first
from runner.history.store import Totals
from runner.model import Evidence, Verdict

BARS = "▁▂▃▄▅▆▇█"


class By(StrEnum):
    """What one point of a trend is."""

    RUN = "run"
    DAY = "day"
    RELEASE = "release"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """How the cells of a run, of a day or of a release ended."""

    name: str
    at: str
    """When: the run's beginning, or the newest result."""
    verdicts: Mapping[Verdict, int]
    evidence: Mapping[Evidence, int]

    @property
    def cells(self) -> int:
        return sum(self.verdicts.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How long a cell takes, in seconds, over its results of one kind of evidence."""

    cell: str
    evidence: Evidence
    median_s: float
    p95_s: float
    of: int


def by_run(totals: Iterable[Totals]) -> list[Point]:
    """A point per run, oldest first: all that was planned, with what a rule excludes."""
    runs: dict[str, list[Totals]] = defaultdict(list)
    for one in totals:
        runs[one.run_id].append(one)
    points = [_point(run_id, parts[0].started_at, parts) for run_id, parts in runs.items()]
    return sorted(points, key=lambda point: (point.at, point.name))


def by_day(records: Iterable[Record]) -> list[Point]:
    """A point per day (UTC), oldest first: the last result that each cell had on it."""
    days: dict[str, list[Record]] = defaultdict(list)
    for one in records:
        days[one.ended_at[:10]].append(one)
    return [_newest(day, days[day]) for day in sorted(days)]


def by_release(records: Iterable[Record], releases: Sequence[str]) -> list[Point]:
    """A point per release, in their order, and one for each other value of the vllm axis: each cell's last result."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for one in records:
        groups[one.release].append(one)
    names = [*(name for name in releases if name in groups), *sorted(set(groups) - set(releases))]
    return [_newest(name, groups[name]) for name in names]


def paces(records: Iterable[Record]) -> list[Pace]:
    """The slowest first, by the median."""
    times: dict[tuple[str, Evidence], list[float]] = defaultdict(list)
    for one in distinct(records):
        if one.duration_s > 0:
            times[one.cell, one.evidence].append(one.duration_s)
    found = [
        Pace(cell=cell, evidence=kind, median_s=statistics.median(taken), p95_s=percentile(taken, 95), of=len(taken))
        for (cell, kind), taken in times.items()
    ]
    return sorted(found, key=lambda pace: (-pace.median_s, pace.cell))


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that at least so many of a hundred do not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def sparkline(values: Sequence[int]) -> str:
    """A bar for each value, from 0 to the largest; only 0 has the lowest bar."""
    most = max(values, default=0)
    return "".join(BARS[math.ceil(value * (len(BARS) - 1) / most) if most else 0] for value in values)


def _point(name: str, at: str, parts: Sequence[Totals]) -> Point:
    verdicts: Counter[Verdict] = Counter()
    evidence: Counter[Evidence] = Counter()
    for one in parts:
        verdicts[one.verdict] += one.cells
        if one.verdict not in {Verdict.UNSUPPORTED, Verdict.SKIPPED, Verdict.NOT_RUN, Verdict.INFRA}:
            evidence[one.evidence] += one.cells
    return Point(name=name, at=at, verdicts=verdicts, evidence=evidence)


def _newest(name: str, records: Sequence[Record]) -> Point:
    """Of cells with several kinds of evidence, each kind counts."""
    last = newest_of_each(records)
    obtained = [one for one in last if one.verdict not in {Verdict.SKIPPED, Verdict.INFRA}]
    return Point(
        name=name,
        at=oldest_first(records)[-1].ended_at,
        verdicts=Counter(one.verdict for one in last),
        evidence=Counter(one.evidence for one in obtained),
    )
