"""`runner ci ...`: what the workflows under .github/ do. Options can be given as variables: no text enters a script."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from runner import output
from runner.commands.arguments import Candidates, Engine, Filters, MatrixFile, chart, counted
from runner.errors import UsageError
from runner.matrix import Matrix
from runner.options import EngineName, default_matrix

PlanDirectory = Annotated[Path, typer.Option("--plan", metavar="DIR", help="What `runner ci plan` wrote.")]
Merged = Annotated[Path, typer.Argument(metavar="MERGED", help="What `runner ci gather` wrote, or one run directory.")]
Needs = Annotated[
    str, typer.Option("--needs", envvar="NEEDS", metavar="JSON", help="toJSON(needs) of the job that runs this.")
]
Machines = Annotated[
    str, typer.Option("--machines", envvar="MACHINES", metavar="ARCHS", help="Archs of GPU machines: sm90,sm100.")
]
FilterText = Annotated[str, typer.Option("--filter-text", envvar="FILTER", metavar="EXPR", help="One more filter.")]
Vllm = Annotated[str, typer.Option("--vllm", envvar="VLLM", metavar="RELEASE", help="The release of vLLM to judge.")]
TierText = Annotated[str | None, typer.Option("--tier", envvar="TIER", metavar="NAME", help="A tier of the matrix.")]
Commit = Annotated[
    str, typer.Option("--commit", envvar="VLLM_COMMIT", metavar="SHA", help="A commit of vLLM, checked out before.")
]
Checkout = Annotated[
    Path, typer.Option("--checkout", envvar="VLLM_CHECKOUT", metavar="DIR", help="Where that commit is checked out.")
]

ci = typer.Typer(help="What the workflows of GitHub Actions do: see docs/self-hosted.md.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.add_typer(ci, name="ci")


def show_jobs(
    found: Matrix, filters: list[str] | None, tier: str | None, candidates: list[str] | None, machines: str
) -> None:
    """Print the jobs of a selection as a workflow reads them."""
    from runner.ci import asking, jobs

    asked = jobs.Asked(
        tier=tier or "",
        filters=tuple(filters or ()),
        candidates=tuple(candidates or ()),
        machines=asking.names(machines),
    )
    made = jobs.make(found, asked)
    output.emit(json.dumps(jobs.as_github([job for job, _ in made]), indent=1))


@ci.command()
def plan(
    matrix_file: MatrixFile = None,
    filters: Filters = None,
    filter_text: FilterText = "",
    tier: TierText = None,
    vllm: Vllm = "",
    commit: Commit = "",
    checkout: Checkout = Path("vllm"),
    machines: Machines = "",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the plan is kept.")] = Path("plan"),
) -> None:
    """Write which jobs there are, and which cells each has; tell the workflow, in GITHUB_OUTPUT."""
    from runner.ci import asking, gather, jobs

    question = asking.asked(
        chart_of=lambda candidates: chart(matrix_file, candidates),
        tier=tier or "",
        filters=(*(filters or ()), *([filter_text] if filter_text else [])),
        vllm=vllm,
        commit=commit,
        checkout=checkout,
        machines=asking.names(machines),
    )
    offline = asking.offline(question.asked.machines, output.note)
    made = jobs.make(question.chart, asking.with_offline(question.asked, offline))
    gather.keep_plan(out, made, matrix_file or default_matrix(), question.chart)
    for name, value in asking.outputs(tuple(job for job, _ in made)).items():
        _append("GITHUB_OUTPUT", f"{name}={value}\n")
    for job, cells in made:
        where = f"skipped: {job.offline}" if job.offline else " ".join(job.runs_on)
        output.emit(f"{job.name}: {len(cells.planned):,} cells, {job.cells:,} to run; {where}")


@ci.command()
def run(
    job: Annotated[str, typer.Option("--job", envvar="JOB", metavar="JSON", help="A job of the plan.")] = "",
    matrix_file: MatrixFile = None,
    filters: Filters = None,
    filter_text: FilterText = "",
    tier: TierText = None,
    candidate: Candidates = None,
    vllm: Vllm = "",
    engine: Engine = EngineName.AUTO,
    limit: Annotated[
        float | None,
        typer.Option("--limit", envvar="LIMIT", metavar="SECONDS", min=1, help="For the run: its results are kept."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The run directory itself.")] = None,
    verbose: Annotated[int, counted("--verbose", "-v", help_="Say more.")] = 0,
) -> None:
    """Run the cells of a job of the plan, or what the options select; nothing they print is a command to GitHub."""
    from runner.ci import annotations, asking, jobs

    if job:
        options = asking.options_of(jobs.from_json(job))
    else:
        texts = (*(filters or ()), *([filter_text] if filter_text else []), *([f"vllm={vllm}"] if vllm else []))
        options = asking.options(texts, tier, tuple(candidate or ()), engine)
    begin, end = annotations.muted()
    output.emit(begin)
    try:
        code = asking.run(options, matrix_file, out, limit, verbose)
    finally:
        output.emit(end)
    raise typer.Exit(code)


@ci.command()
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
    from runner import session
    from runner.ci import asking, gate
    from runner.ci import gather as gathering

    made = gathering.kept_plan(plan_directory)
    found = gathering.gather(made, runs, session.read, untaken=asking.names(untaken))
    gathering.keep(out, found, plan_directory, title=title or "matrix")
    output.emit("\n".join(gate.lines(found, {})[:-1]))


@ci.command()
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
        rows = session.read(merged)
        code = outcome.exit_code(row.verdict for row in rows)
        text = markdown.render(rows, exit_code=code, title=title)
    if not _append("GITHUB_STEP_SUMMARY", text):
        output.emit(text.rstrip())


@ci.command()
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
        lines = making.of_run(session.read(merged))
    output.emit("\n".join(lines) or "nothing to say")


@ci.command()
def gate(merged: Merged = Path("merged"), needs: Needs = "") -> None:
    """Say yes or no to the whole, with the exit code of a run: the one check that a branch is protected by."""
    from runner.ci import gate as judging
    from runner.ci import gather as gathering

    needed = judging.needs(needs)
    found = gathering.kept(merged, or_nothing=judging.failed(needed))
    output.emit("\n".join(judging.lines(found, needed)))
    raise typer.Exit(judging.code(found, needed))


@ci.command()
def wait(
    names: Annotated[str, typer.Option("--jobs", envvar="JOBS", metavar="NAMES", help="Of the plan, by comma.")] = "",
    minutes: Annotated[
        float, typer.Option("--minutes", envvar="MINUTES", min=0, help="How long a job may be queued.")
    ] = 30.0,
) -> None:
    """Wait for the jobs on GPU machines, but not for one that no machine takes; 3 where one is missing or red."""
    from runner.ci import api, asking, waiting

    github = api.Api.here("GITHUB_TOKEN")
    run_id, attempt = _number("GITHUB_RUN_ID"), _number("GITHUB_RUN_ATTEMPT")
    waited = waiting.wait(
        asking.names(names), lambda: github.jobs(run_id, attempt), patience_s=minutes * 60, tell=output.note
    )
    _append("GITHUB_OUTPUT", f"untaken={','.join(waited.untaken)}\n")
    for name in waited.untaken:
        output.emit(f"{name}: no machine took it within {minutes:g} minutes: is one registered, online and not busy?")
    for name in waited.red:
        output.emit(f"{name}: ended red")
    raise typer.Exit(3 if waited.untaken or waited.red else 0)


@ci.command()
def admit(
    repository: Annotated[list[str], typer.Option("--repository", metavar="OWNER/NAME", help="Whose jobs are taken.")],
    maintainer: Annotated[
        list[str] | None,
        typer.Option("--maintainer", metavar="LOGIN", help="Who may put the label; by default all whom GitHub lets."),
    ] = None,
    label: Annotated[str, typer.Option("--label", metavar="NAME", help="The label that authorises a commit.")] = "gpu",
) -> None:
    """On a GPU machine, before each job: 0 where it may run, else 3 and why. See docs/self-hosted.md."""
    from runner.ci import admission

    rules = admission.Rules(repositories=frozenset(repository), maintainers=frozenset(maintainer or ()), label=label)
    output.emit(f"taken: {admission.admit(rules, os.environ)}")


@ci.command()
def clean(
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Where run directories are.")] = Path("runs"),
    days: Annotated[float, typer.Option("--days", min=0, help="Run directories older than this are removed.")] = 14.0,
    free: Annotated[
        float, typer.Option("--free", metavar="GB", min=0, help="Remove unused environments until this much is free.")
    ] = 0.0,
) -> None:
    """End what dead runs left, remove old run directories, and make room on the disk."""
    from runner.ci import cleaning

    cleaning.end_left_overs(output.note)
    cleaning.remove_runs(runs, days=days, say=output.note)
    cleaning.make_room(free, output.note)


@ci.command("cache-key")
def cache_key(
    matrix_file: MatrixFile = None,
    job: Annotated[str, typer.Option("--job", envvar="JOB", metavar="JSON", help="A job of the plan.")] = "",
    tier: TierText = None,
    filter_text: FilterText = "",
    vllm: Vllm = "",
) -> None:
    """Name what the environments of these cells are made from; tell the workflow, in GITHUB_OUTPUT, as `key`."""
    from runner.ci import asking, jobs

    if job:
        options = asking.options_of(jobs.from_json(job))
    else:
        texts = [text for text in (filter_text, f"vllm={vllm}" if vllm else "") if text]
        options = asking.options(texts, tier, (), EngineName.AUTO)
    key = asking.cache_key(chart(matrix_file, list(options.candidates)), options)
    if not _append("GITHUB_OUTPUT", f"key={key}\n"):
        output.emit(key)


def _append(variable: str, text: str) -> bool:
    """Add to the file that a variable of a step names; false where there is none."""
    if not (path := os.environ.get(variable)):
        return False
    with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return True


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    if not text.isdecimal():
        raise UsageError(f"{variable} is not set to a number: this command is for a step of GitHub Actions")
    return int(text)
