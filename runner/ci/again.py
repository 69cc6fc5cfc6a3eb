"""Runs what failed of a workflow run once more, where a machine with a GPU was the trouble.

The first attempt alone: trouble that comes twice is for people. GitHub runs nothing again while a run goes on, so this
follows its end. It gives a job to whichever machine is free; `runner ci fit` keeps one that is not well from taking it.

Sources: docs.github.com, "Re-running workflows and jobs" (failed jobs, and those that depend on them), and /rest,
"Re-run failed jobs from a workflow run" (actions: write).
"""

from collections.abc import Iterator, Mapping

from runner.ci.admission import BY_WRITERS
from runner.ci.api import Api
from runner.ci.earlier import WORKFLOWS
from runner.ci.ended import Ended
from runner.ci.gather import Came, Gathered
from runner.ci.jobs import Side
from runner.model import CellResult, State
from runner.nearest import quoted
from runner.reports.text import count


def not_ours(ended: Ended, environ: Mapping[str, str]) -> str:
    """Why a run is not run again, whatever it left; empty where it may be."""
    theirs = ended.head_repository.full_name if ended.head_repository else ""
    for well, why in (
        (ended.file in WORKFLOWS, f"it is of {quoted(ended.file)}, and only {' and '.join(WORKFLOWS)} are run again"),
        (theirs == environ.get("GITHUB_REPOSITORY"), f"its commit is of {quoted(theirs or 'nobody')}"),
        (ended.event in BY_WRITERS, f"the event {quoted(ended.event)} started it"),
        (ended.conclusion == "failure", f"it ended as {quoted(ended.conclusion or 'nothing')}"),
        (ended.run_attempt == 1, f"it was run again already: this was attempt {ended.run_attempt}"),
    ):
        if not well:
            return why
    return ""


def machine_troubles(found: Gathered) -> list[str]:
    """The jobs on machines with GPUs whose machine was the trouble, and how, for people.

    A job that no machine took would wait again. Cells that a job had no time for would have none again.
    """
    rows = {row.id: row for row in found.rows.get(Side.DEVICE, ())}
    return [
        f"{came.job.name}: {why}"
        for came in found.came
        if came.job.side is Side.DEVICE and not came.job.offline and (why := "; ".join(_why(came, rows)))
    ]


def _why(came: Came, rows: Mapping[str, CellResult]) -> Iterator[str]:
    yield from came.troubles
    if came.skipped:
        yield f"{count(came.skipped, 'cell')} without evidence: {came.because}"
    if not came.troubles and (broken := [row for row in rows.values() if row.state is State.INFRA and _of(row, came)]):
        yield f"{count(len(broken), 'cell')} infra: {broken[0].reason}"


def _of(row: CellResult, came: Came) -> bool:
    """Whether it is of that arch: what came back does not say of which part."""
    return str(row.axes.get("arch")) == came.job.runs_on[-1]


def again(api: Api, ended: Ended) -> str:
    """Run what failed once more; where it may be seen."""
    api.post(f"actions/runs/{ended.id}/rerun-failed-jobs", {})
    return f"what failed of the run {ended.id} runs again"
