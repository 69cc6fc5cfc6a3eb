"""`runner ci gather|summary|annotations|gate`: what became of the jobs of a workflow run, and what GitHub shows."""

from pathlib import Path
from typing import Annotated

import typer

from runner import output
from runner.ci import step

PlanDirectory = Annotated[Path, typer.Option("--plan", metavar="DIR", help="What `runner ci plan` wrote.")]
Merged = Annotated[Path, typer.Argument(metavar="MERGED", help="What `runner ci gather` wrote, or one run directory.")]
Needs = Annotated[
    str, typer.Option("--needs", envvar="NEEDS", metavar="JSON", help="toJSON(needs) of the job that runs this.")
]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(gather)
    app.command()(summary)
    app.command()(annotations)
    app.command()(gate)


def gather(
    plan_directory: PlanDirectory = Path("plan"),
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Where the jobs' run directories are.")] = Path(
        "runs"
    ),
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the merged runs are written.")] = Path(
        "merged"
    ),
    untaken: Annotated[
        str, typer.Option("--untaken", envvar="UNTAKEN", metavar="NAMES", help="Jobs that no machine took in time.")
    ] = "",
    title: Annotated[str, typer.Option("--title", envvar="TITLE", metavar="TEXT", help="Of the reports.")] = "",
) -> None:
    """Merge what came back of the jobs, against the plan: what did not come back is a result too."""
    from runner import matrix, session
    from runner.ci import asking, gate
    from runner.ci import gather as gathering

    made = gathering.kept_plan(plan_directory)
    found = gathering.gather(made, runs, session.read_run, untaken=asking.names(untaken))
    if (kept := plan_directory / gathering.MATRIX).exists():
        found = gathering.judged(found, matrix.load(kept, idle=True))
    gathering.keep(out, found, plan_directory, title=title or "matrix")
    output.emit("\n".join(gate.lines(found, {})[:-1]))


def summary(
    merged: Merged = Path("merged"),
    needs: Needs = "",
    title: Annotated[str, typer.Option("--title", envvar="TITLE", metavar="TEXT", help="Of the page.")] = "",
) -> None:
    """Write the job summary: to the file that GITHUB_STEP_SUMMARY names, or to standard output."""
    from runner import outcome, session
    from runner.ci import gate, page
    from runner.ci import gather as gathering
    from runner.reports import markdown

    needed = gate.needs(needs)
    if gate.failed(needed) or (merged / gathering.JOBS_FILE).exists():
        text = page.render(gathering.kept(merged, or_nothing=True), needed, title=title)
    else:
        rows = session.read_run(merged)
        code = outcome.exit_code(row.verdict for row in rows)
        text = markdown.render(rows, exit_code=code, title=title)
    if not step.append("GITHUB_STEP_SUMMARY", text):
        output.emit(text.rstrip())


def annotations(merged: Merged = Path("merged"), needs: Needs = "") -> None:
    """Print at most ten annotations, the worst first."""
    from runner import session
    from runner.ci import annotations as making
    from runner.ci import gate
    from runner.ci import gather as gathering

    needed = gate.needs(needs)
    if gate.failed(needed) or (merged / gathering.JOBS_FILE).exists():
        lines = making.annotations(gathering.kept(merged, or_nothing=True), needed)
    else:
        lines = making.of_run(session.read_run(merged))
    for line in lines:
        output.command(line)
    if not lines:
        output.emit("nothing to say")


def gate(merged: Merged = Path("merged"), needs: Needs = "") -> None:
    """Say yes or no to the whole, with the exit code of a run: the one check that a branch is protected by."""
    from runner.ci import gate as judging
    from runner.ci import gather as gathering

    needed = judging.needs(needs)
    found = gathering.kept(merged, or_nothing=judging.failed(needed))
    output.emit("\n".join(judging.lines(found, needed)))
    raise typer.Exit(judging.code(found, needed))
