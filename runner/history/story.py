"""The history of one cell, gathered: what `runner history CELL` shows and what it gives as JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from runner.history import questions, refusals
from runner.history.questions import Rate, Since, Symptom
from runner.history.records import Record, distinct, evidences, oldest_first
from runner.history.store import History
from runner.matrix import Expectation
from runner.model import AxisValue, Evidence


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """What is said of one kind of evidence; `releases` is the newest result of each up to the cell's own, in order."""

    evidence: Evidence
    releases: tuple[Record, ...]
    over_releases: Since | None
    over_time: Since | None
    age_s: float
    """Of the newest result of the cell itself; nan where it has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Story:
    """Everything about one cell; `results` are its own, newest first."""

    cell: str
    symptom: Symptom
    results: tuple[Record, ...]
    lines: tuple[Line, ...]
    rates: tuple[Rate, ...]


def tell(
    history: History,
    cell: str,
    axes: Mapping[str, AxisValue],
    releases: Sequence[str],
    symptom: Symptom,
    now: datetime,
    expect: Sequence[Expectation] = (),
) -> Story:
    """The story of a cell; releases are those of the matrix, in order, and those after the cell's own are left out.

    A candidate is a point in time, not one in the order of the releases: it is asked about over time alone.
    """
    known = {**history.axes(), cell: dict(axes)}
    records = refusals.judged(history.records(questions.alike(known, dict(axes))), expect, releases)
    own = [one for one in records if one.cell == cell]
    release = str(axes.get("vllm", ""))
    up_to = releases[: releases.index(release) + 1] if release in releases else ()
    return Story(
        cell=cell,
        symptom=symptom,
        results=tuple(reversed(oldest_first(distinct(own)))),
        lines=tuple(_line(kind, records, own, up_to, symptom, now) for kind in evidences(records)),
        rates=tuple(questions.rates(own, symptom)),
    )


def _line(
    kind: Evidence,
    records: Sequence[Record],
    own: Sequence[Record],
    releases: Sequence[str],
    symptom: Symptom,
    now: datetime,
) -> Line:
    across = questions.over_releases(records, releases, kind)
    times = questions.over_time(own, kind)
    return Line(
        evidence=kind,
        releases=tuple(across),
        over_releases=questions.since(across, symptom),
        over_time=questions.since(times, symptom),
        age_s=questions.age_s(times[-1], now) if times else float("nan"),
    )


def as_json(story: Story) -> dict[str, Any]:
    """Plain data; a time span that is not known is null."""
    return {
        "cell": story.cell,
        "bad": str(story.symptom),
        "results": [plain(one) for one in story.results],
        "lines": [
            {
                "evidence": line.evidence.value,
                "age_s": None if math.isnan(line.age_s) else line.age_s,
                "releases": [plain(one) for one in line.releases],
                "over_releases": _since(line.over_releases),
                "over_time": _since(line.over_time),
            }
            for line in story.lines
        ],
        "rates": [rate_as_json(rate) for rate in story.rates],
    }


def plain(one: Record) -> dict[str, Any]:
    """A result as plain data."""
    return asdict(one)


def rate_as_json(rate: Rate) -> dict[str, Any]:
    low, high = rate.interval
    return {
        "cell": rate.cell,
        "evidence": rate.evidence.value,
        "revision": asdict(rate.revision),
        "bad": rate.bad,
        "of": rate.of,
        "rate": rate.rate,
        "interval": {"confidence": questions.CONFIDENCE, "method": "wilson", "low": low, "high": high},
        "flaky": rate.flaky,
    }


def _since(found: Since | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "bad": found.bad,
        "first_bad" if found.bad else "first_good": plain(found.first),
        "last_good" if found.bad else "last_bad": plain(found.before) if found.before else None,
        "between": [plain(one) for one in found.between],
        "changed": {name: {"from": a, "to": b} for name, (a, b) in found.changed.items()},
    }
