"""The one check that a branch is protected by: whatever jobs a plan has, it says yes or no, and why."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from runner import outcome
from runner.ci.gather import Gathered
from runner.ci.jobs import Side
from runner.errors import UsageError
from runner.reports import summary
from runner.reports.text import count, one_line

MACHINE_TROUBLE = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """How a job that the check needs came out: success, failure, cancelled, skipped."""

    result: str


_NEED = TypeAdapter(Need)
_NEEDS = TypeAdapter(dict[str, Need])


def needs(text: str, plan: str = "") -> Mapping[str, Need]:
    """Read `toJSON(needs)`, and `toJSON(needs.plan)` of the caller; UsageError where it is something else."""
    try:
        found = _NEEDS.validate_json(text or "{}")
        return {"plan": _NEED.validate_json(plan), **found} if plan else found
    except ValidationError:
        raise UsageError("--needs or --plan-job is not what toJSON(needs) gives in a workflow") from None


def code(found: Gathered, needed: Mapping[str, Need]) -> int:
    """0 where everything is as expected; product trouble wins over all else, as in a run."""
    rows = outcome.exit_code(row.verdict for row in found.all_rows)
    if rows == 1 or not (failed(needed) or found.troubles or (found.required and missing(found))):
        return rows
    return rows or MACHINE_TROUBLE


def lines(found: Gathered, needed: Mapping[str, Need]) -> list[str]:
    """What the check says, most important first; the last line is the exit code's."""
    told = [*troubles(found, needed), *unjudged(found)]
    told += [f"{came.job.name}: {came.arrived:,} of {came.planned:,} cells" for came in found.came]
    told += [f"{side}: {summary.totals_line(rows)}" for side, rows in found.rows.items()]
    return [one_line(line, 500) for line in (*told, summary.exit_line(code(found, needed)))]


def troubles(found: Gathered, needed: Mapping[str, Need]) -> list[str]:
    """What is wrong with the jobs, and which evidence is missing."""
    return [*broken(needed), *found.troubles, *missing(found)]


def unjudged(found: Gathered) -> list[str]:
    """Why no cell was judged, where a plan asks for none."""
    return [f"no cell was judged: {found.nothing}"] if found.nothing else []


def failed(needed: Mapping[str, Need]) -> bool:
    """Whether there may be nothing to judge."""
    return any(broken(needed))


def broken(needed: Mapping[str, Need]) -> Iterator[str]:
    """A job of cells that failed speaks through its results; one that makes the plan, or was cancelled, has none."""
    for name, need in needed.items():
        if need.result == "cancelled" or (name == "plan" and need.result != "success"):
            yield f"the job {name} ended as {need.result}"


def missing(found: Gathered) -> list[str]:
    """Evidence that was asked for and that no machine was there to give."""
    return [
        f"missing evidence: {came.job.name} on a GPU, {count(came.skipped, 'cell')}: {came.because}"
        for came in found.came
        if came.job.side is Side.DEVICE and came.skipped
    ]
