"""ctrf.json: the Common Test Report Format, for dashboards and bots that read it; a test for each cell.

The format is described at https://ctrf.io, version 1.0.0. It has five statuses for the verdicts of the project, whose
own word is in `rawStatus`. What a reader must not miss, the evidence, is a label, a tag, and in each message.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from runner import __version__
from runner.model import CellResult, Fault, State, Verdict
from runner.reports import junit
from runner.reports.text import finite, one_line

SPECIFICATION = "1.0.0"
STATUSES = ("passed", "failed", "skipped", "pending", "other")
UNTOLD = frozenset({Verdict.REFUSED, Verdict.UNSUPPORTED, Verdict.SKIPPED})
"""Verdicts of cells about which nothing was to be found out."""


def render(results: Sequence[CellResult], *, title: str = "") -> str:
    """The same bytes for the same results: the times in it are those of the cells."""
    tests = [_test(result) for result in results]
    counts = Counter(test["status"] for test in tests)
    ends = [test["stop"] for test in tests if "stop" in test]
    starts = [test["start"] for test in tests if "start" in test]
    releases = list(dict.fromkeys(one_line(str(result.axes.get("vllm", ""))) for result in results))
    document = {
        "reportFormat": "CTRF",
        "specVersion": SPECIFICATION,
        "generatedBy": f"attnmatrix {__version__}",
        "results": {
            "tool": {"name": "attnmatrix", "version": __version__},
            "summary": {
                "tests": len(tests),
                **{status: counts[status] for status in STATUSES},
                "flaky": sum(test.get("flaky", False) for test in tests),
                "start": min(starts, default=0),
                "stop": max(ends, default=0),
            },
            "environment": {
                "appName": "vLLM",
                "appVersion": ", ".join(releases),
                **({"reportName": one_line(title)} if title else {}),
            },
        },
    }
    # A line for each test, so that two reports can be compared by eye and by diff.
    head = json.dumps(document, ensure_ascii=True)
    lines = ",\n".join(json.dumps(test, ensure_ascii=True) for test in tests)
    return f'{head[:-2]}, "tests": [\n{lines}\n]}}}}\n'


def status(verdict: Verdict) -> str:
    """Trouble of the product, the harness or the machine has failed; what was known and is still so is neither."""
    if verdict is Verdict.NOT_RUN:
        return "pending"
    if verdict.fault is not Fault.NONE:
        return "failed"
    if verdict in {Verdict.XFAIL, Verdict.FLAKY}:
        return "other"
    return "skipped" if verdict in UNTOLD else "passed"


def _test(result: CellResult) -> dict[str, Any]:
    axes = {one_line(axis, 60): _scalar(value) for axis, value in result.axes.items()}
    duration = round(finite(result.duration_s) * 1000)
    found: dict[str, Any] = {
        "name": one_line(result.id) or "unnamed",
        "status": status(result.verdict),
        "rawStatus": result.verdict.value,
        "duration": duration,
        "suite": [one_line(str(result.axes.get(axis, ""))) or "none" for axis in ("backend", "arch")],
        "tags": [result.evidence.value],
        "labels": {**axes, "evidence": result.evidence.value, "state": result.state.value},
    }
    if (stop := _milliseconds(result.ended_at)) is not None:
        found |= {"start": stop - duration, "stop": stop}
    if result.verdict is not Verdict.PASS:
        found |= {
            "message": f"{junit.message(result)} ({result.evidence})",
            "trace": junit.details(result),
        }
    if result.reruns:
        found |= {
            "retries": len(result.reruns),
            "flaky": State.PASS in result.reruns,
            "retryAttempts": [
                {"attempt": number, "status": status(Verdict(state.value))}
                for number, state in enumerate((result.state, *result.reruns), start=1)
            ],
        }
    extra = _extra(result)
    return found | ({"extra": extra} if extra else {})


def _extra(result: CellResult) -> Mapping[str, Any]:
    found = {
        "overflow": [
            {"buffer": one_line(o.buffer), "required": o.required, "allocated": o.allocated, "how": o.how.value}
            for o in result.overflow
        ],
        "known": one_line(result.known),
        "expected": one_line(result.expected),
        "repro": one_line(result.repro, 1000),
        "environment": {one_line(name): one_line(value) for name, value in result.environment.items() if value},
    }
    return {name: value for name, value in found.items() if value}


def _scalar(value: str | int) -> str | int:
    return value if isinstance(value, int) else one_line(value)


def _milliseconds(when: str) -> int | None:
    """Since 1970; None for what is no time."""
    try:
        return round(datetime.fromisoformat(when).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None
