"""What became of the jobs of a workflow run, and what GitHub shows of it: `runner ci gather` and those after it."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner import output
from runner.ci import step
from runner.errors import UsageError
from runner.nearest import quoted

if TYPE_CHECKING:
    from runner.ci.gather import Asker

PlanDirectory = Annotated[Path, typer.Option("--plan", metavar="DIR", help="What `runner ci plan` wrote.")]
Merged = Annotated[Path, typer.Argument(metavar="MERGED", help="What `runner ci gather` wrote, or one run directory.")]
Needs = Annotated[
    str, typer.Option("--needs", envvar="NEEDS", metavar="JSON", help="toJSON(needs) of the job that runs this.")
]
PlanJob = Annotated[
    str, typer.Option("--plan-job", envvar="PLAN", metavar="JSON", help="toJSON(needs.plan) of the calling workflow.")
]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(gather)
    app.command()(summary)
    app.command()(annotations)
    app.command()(gate)
    app.command("report-missing")(report_missing)


def gather(
    plan_directory: PlanDirectory = Path("plan"),
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Where the jobs' run directories are.")] = Path(
        "runs"
    ),
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the merged runs are written.")] = Path(
        "merged"
    ),
    of: Annotated[
        str,
        typer.Option("--of", envvar="OF", metavar="ID", help="An earlier workflow run, which GitHub is asked about."),
    ] = "",
    required: Annotated[
        bool, typer.Option("--require-device", envvar="REQUIRE_DEVICE", help="Missing evidence makes the gate red.")
    ] = False,
    title: Annotated[str, typer.Option("--title", envvar="TITLE", metavar="TEXT", help="Of the reports.")] = "",
) -> None:
    """Merge what came back of the jobs, against the plan: what did not come back is a result too.

    With GITHUB_TOKEN, GitHub is asked how each job ended.
    """
    from runner import session
    from runner.ci import gate
    from runner.ci import gather as gathering

    made = gathering.kept_plan(plan_directory)
    asker = _asker([job.name for job, _ in made], of)
    why = gathering.kept_reason(plan_directory)
    found = gathering.gather(made, runs, session.read_run, asker, required=required, nothing=why)
    found = gathering.judged(found, gathering.kept_chart(plan_directory))
    gathering.keep(out, found, plan_directory, title=title or "matrix")
    output.emit("\n".join(gate.lines(found, {})[:-1]))


def _asker(names: list[str], of: str) -> "Asker":
    """This attempt at this workflow run, or the last one at an earlier run that may be taken."""
    from runner import rundir
    from runner.ci import api, earlier
    from runner.ci.gather import Asker

    workflow, attempt = rundir.here()
    if of:
        if not re.fullmatch(r"[1-9][0-9]{0,19}", of):
            raise UsageError(f"--of names {quoted(of)}: it takes the number (id) of a workflow run, as in its address")
        github, workflow = api.Api.here("GITHUB_TOKEN"), int(of)
        run = github.run(workflow)
        earlier.check(run, workflow, os.environ)
        attempt = run.run_attempt
    elif "GITHUB_TOKEN" in os.environ and attempt:
        github = api.Api.here("GITHUB_TOKEN")
    else:
        return Asker(workflow=workflow, attempt=attempt)
    return Asker(workflow=workflow, attempt=attempt, states=github.last_states(workflow, attempt, names))


def summary(
    merged: Merged = Path("merged"),
    needs: Needs = "",
    plan_job: PlanJob = "",
    title: Annotated[str, typer.Option("--title", envvar="TITLE", metavar="TEXT", help="Of the page.")] = "",
) -> None:
    """Write the job summary: to the file that GITHUB_STEP_SUMMARY names, or to standard output."""
    from runner import outcome, session
    from runner.ci import gate, page
    from runner.ci import gather as gathering
    from runner.reports import markdown

    needed = gate.needs(needs, plan_job)
    if gate.failed(needed) or (merged / gathering.JOBS_FILE).exists():
        text = page.render(gathering.kept(merged, or_nothing=True), needed, title=title)
    else:
        rows = session.read_run(merged)
        code = outcome.exit_code(row.verdict for row in rows)
        text = markdown.render(rows, exit_code=code, title=title)
    if not step.append("GITHUB_STEP_SUMMARY", text):
        output.emit(text.rstrip())


def annotations(merged: Merged = Path("merged"), needs: Needs = "", plan_job: PlanJob = "") -> None:
    """Print at most ten annotations, the worst first."""
    from runner import session
    from runner.ci import annotations as making
    from runner.ci import gate
    from runner.ci import gather as gathering

    needed = gate.needs(needs, plan_job)
    if gate.failed(needed) or (merged / gathering.JOBS_FILE).exists():
        lines = making.annotations(gathering.kept(merged, or_nothing=True), needed)
    else:
        lines = making.of_run(session.read_run(merged))
    for line in lines:
        output.command(line)
    if not lines:
        output.emit("nothing to say")


def gate(merged: Merged = Path("merged"), needs: Needs = "", plan_job: PlanJob = "") -> None:
    """Say yes or no to the whole, with the exit code of a run: the one check that a branch is protected by."""
    from runner.ci import gate as judging
    from runner.ci import gather as gathering

    needed = judging.needs(needs, plan_job)
    found = gathering.kept(merged, or_nothing=judging.failed(needed))
    output.emit("\n".join(judging.lines(found, needed)))
    raise typer.Exit(judging.code(found, needed))


def report_missing(merged: Merged = Path("merged")) -> None:
    """Keep one issue about the evidence that no machine gave: needs a token that may write issues."""
    from runner.ci import api, missing
    from runner.ci import gather as gathering

    github = api.Api.here("GITHUB_TOKEN")
    run = f"{os.environ.get('GITHUB_SERVER_URL', '')}/{github.repository}/actions/runs/{step.number('GITHUB_RUN_ID')}"
    found = gathering.kept(merged, or_nothing=True)
    output.emit(missing.report(github, found, workflow=os.environ.get("GITHUB_WORKFLOW", ""), run=run))
