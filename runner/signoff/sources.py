"""What is checked of a run directory before it goes into a bundle: that it is whole, and says what its journal says."""

from dataclasses import replace
from datetime import date
from pathlib import Path

from runner import journal, results
from runner import plan as planning
from runner.errors import UsageError
from runner.expectations import naked
from runner.model import CellFinished, CellResult
from runner.reports.text import one_line
from runner.signoff import inputs

EVENTS = "events.jsonl"


def check(run: Path) -> None:
    """UsageError where a file is missing, or where results.json is not what the run's own journal gives."""
    for name in (results.NAME, inputs.PLAN, inputs.MATRIX):
        if not (run / name).is_file():
            raise UsageError(f"{run}: has no {name}: {_remedy(run, name)}")
    if (run / EVENTS).is_file():
        _check_journal(run)


def _remedy(run: Path, name: str) -> str:
    unfinished = name == results.NAME and (run / EVENTS).exists()
    return f"`runner resume {run}` finishes it" if unfinished else "name a run directory, such as runs/latest"


def _check_journal(run: Path) -> None:
    """The journal is the truth: a result that was edited, or came from elsewhere, is not in it."""
    planned = planning.read(run / inputs.PLAN).planned
    ended = {e.outcome.cell.id: e.outcome for e in journal.read(run / EVENTS) if isinstance(e, CellFinished)}
    told = results.build(planned, ended.values(), known=(), expect=(), before={}, repro_of=lambda _: "", today=date.min)
    there = {row.id: row for row in results.read(run)}
    for row in results.parse(results.to_json(told).encode(), EVENTS):  # as it is read back from a file
        found = there.get(row.id)
        if found and _facts(found) != _facts(row):
            raise UsageError(
                f"{run}: {results.NAME} says of {one_line(row.id)} what {EVENTS} does not: {_said(found)}, there "
                f"{_said(row)}: it was edited, or is of another run; run these cells again"
            )


def _said(row: CellResult) -> str:
    return f"{row.state}, {row.evidence}, {one_line(row.ended_at) or 'no time'}"


def _facts(row: CellResult) -> CellResult:
    """The row without what is said about it: by known issues, and how to show it again."""
    return replace(row, verdict=naked(row.state), known="", expected="", reason="", repro="")
