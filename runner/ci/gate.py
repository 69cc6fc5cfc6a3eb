"""The one check that a branch is protected by: whatever jobs a plan has, it says yes or no, and why."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from runner import outcome
from runner.ci.gather import Gathered
from runner.ci.jobs import Side
from runner.errors import UsageError
from runner.model import CellResult, State
from runner.reports import summary
from runner.reports.text import count, one_line

MACHINE_TROUBLE = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """How a job that the check needs came out: success, failure, cancelled, skipped."""

    result: str


_NEEDS = TypeAdapter(dict[str, Need])


def needs(text: str) -> Mapping[str, Need]:
    """Read `toJSON(needs)`; UsageError where it is something else."""
    try:
        return _NEEDS.validate_json(text or "{}")
    except ValidationError:
        raise UsageError("--needs is not what toJSON(needs) gives in a workflow") from None


def code(found: Gathered, needed: Mapping[str, Need]) -> int:
    """0 where everything is as expected; product trouble wins over all else, as in a run."""
    rows = outcome.exit_code(row.verdict for row in found.all_rows)
    if rows == 1 or not (failed(needed) or found.troubles):
        return rows
    return rows or MACHINE_TROUBLE


def lines(found: Gathered, needed: Mapping[str, Need]) -> list[str]:
    """What the check says, most important first; the last line is the exit code's."""
    told = troubles(found, needed)
    told += [f"{came.job.name}: {came.arrived:,} of {came.planned:,} cells" for came in found.came]
    told += [f"{side}: {summary.totals_line(rows)}" for side, rows in found.rows.items()]
    return [one_line(line, 500) for line in (*told, summary.exit_line(code(found, needed)))]


def troubles(found: Gathered, needed: Mapping[str, Need]) -> list[str]:
    """What is wrong with the jobs, and which evidence is missing."""
    return [*broken(needed), *found.troubles, *missing(found)]


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
    told = []
    for came in found.came:
        if came.job.side is Side.DEVICE and (rows := _skipped(found, came.job.name)):
            why = rows[0].reason
            told.append(f"missing evidence: {came.job.name} on a GPU, {count(len(rows), 'cell')}: {why}")
    return told


def _skipped(found: Gathered, arch: str) -> list[CellResult]:
    rows = found.rows.get(Side.DEVICE, ())
    return [row for row in rows if row.axes.get("arch") == arch and row.state is State.SKIPPED]
