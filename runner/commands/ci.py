"""`runner ci ...`: what the workflows under .github/ do. Options can be given as variables: no text enters a script."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from runner import output
from runner.ci import step
from runner.commands import ci_after, ci_machines, ci_pulls, ci_results
from runner.commands.arguments import Candidates, Engine, Filters, MatrixFile, chart, counted
from runner.errors import MachineError
from runner.matrix import Matrix
from runner.options import EngineName, RunOptions, default_matrix

Machines = Annotated[
    str,
    typer.Option(
        "--machines", envvar="MACHINES", metavar="ARCHS", help="Archs of GPU machines, and jobs of each: sm90:2,sm100."
    ),
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
    ci_results.add_to(ci)
    ci_machines.add_to(ci)
    ci_pulls.add_to(ci)
    ci_after.add_to(ci)
    app.add_typer(ci, name="ci")


def show_jobs(found: Matrix, filters: list[str] | None, tier: str | None, machines: str) -> None:
    """Print the jobs of a selection as a workflow reads them."""
    from runner.candidates import settled
    from runner.ci import asking, jobs

    asked = jobs.Asked(
        tier=tier or "",
        filters=tuple(filters or ()),
        candidates=settled(found),
        machines=asking.machines(machines),
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
    pool: Annotated[
        str, typer.Option("--pool", envvar="POOL", metavar="LABEL", help="Of GPU machines: gpu-release or gpu-pr.")
    ] = "gpu-release",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the plan is kept.")] = Path("plan"),
    unless_docs: Annotated[
        bool,
        typer.Option("--unless-docs", envvar="UNLESS_DOCS", help="No job where a merge changes docs alone."),
    ] = False,
) -> None:
    """Write which jobs there are, and which cells each has; tell the workflow, in GITHUB_OUTPUT."""
    from runner.ci import asking, changed, gather, jobs

    question = asking.asked(
        chart_of=lambda candidates: chart(matrix_file, candidates),
        tier=tier or "",
        filters=(*(filters or ()), *([filter_text] if filter_text else [])),
        vllm=vllm,
        commit=commit,
        checkout=checkout,
        machines=asking.machines(machines),
        pool=pool,
    )
    nothing = changed.only_docs(Path.cwd()) if unless_docs else ""
    made = () if nothing else jobs.make(question.chart, asking.with_machines(question.asked, output.note))
    gather.keep_plan(out, made, matrix_file or default_matrix(), question.chart, nothing=nothing)
    for name, value in asking.outputs(tuple(job for job, _ in made)).items():
        step.append("GITHUB_OUTPUT", f"{name}={value}\n")
    if nothing:
        output.emit(f"no jobs: {nothing}")
    for job, cells in made:
        where = f"skipped: {job.offline}" if job.offline else " ".join(job.runs_on)
        where += f", busy now: {job.busy}" if job.busy else ""
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
    from runner.ci import annotations, asking, fitness, jobs

    if job:
        options = asking.options_of(jobs.from_json(job))
    else:
        texts = (*(filters or ()), *([filter_text] if filter_text else []), *([f"vllm={vllm}"] if vllm else []))
        options = asking.options(texts, tier, tuple(candidate or ()), engine)
    begin, end = annotations.muted()
    output.command(begin)
    try:
        code = asking.run(options, matrix_file, out, limit, verbose)
        fitness.leave_word(code, os.environ)
    except MachineError:
        fitness.leave_word(fitness.TROUBLE, os.environ)
        raise
    finally:
        output.command(end)
    raise typer.Exit(code)


def _options(job: str, tier: str | None, filter_text: str, vllm: str) -> RunOptions:
    """What a job of a plan asks for, or what is asked for without one."""
    from runner.ci import asking, jobs

    if job:
        return asking.options_of(jobs.from_json(job))
    texts = [text for text in (filter_text, f"vllm={vllm}" if vllm else "") if text]
    return asking.options(texts, tier, (), EngineName.AUTO)


@ci.command()
def images(
    job: Annotated[str, typer.Option("--job", envvar="JOB", metavar="JSON", help="A job of the plan.")] = "",
    matrix_file: MatrixFile = None,
    tier: TierText = None,
    filter_text: FilterText = "",
    vllm: Vllm = "",
) -> None:
    """Build what those cells of a job run in that get a GPU of this machine, and remove such images of old."""
    from runner.ci import images
    from runner.environments import progress

    options = _options(job, tier, filter_text, vllm)
    found = chart(matrix_file, list(options.candidates))
    with progress.shown() as say:
        names = images.provide(images.needed(found, images.releases_of(found, options), say), say)
    output.emit("\n".join(names) if names else "no image is needed here")


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
    run_id, attempt = step.number("GITHUB_RUN_ID"), step.number("GITHUB_RUN_ATTEMPT")
    waited = waiting.wait(
        asking.names(names),
        lambda: github.jobs(run_id, attempt),
        patience_s=minutes * 60,
        tell=output.note,
        before=lambda: github.last_states(run_id, attempt - 1, asking.names(names)),
    )
    for name in waited.untaken:
        output.emit(f"{name}: no machine took it within {minutes:g} minutes: is one registered, online and not busy?")
    for name in waited.red:
        output.emit(f"{name}: ended red")
    raise typer.Exit(3 if waited.untaken or waited.red else 0)


@ci.command("cache-key")
def cache_key(
    matrix_file: MatrixFile = None,
    job: Annotated[str, typer.Option("--job", envvar="JOB", metavar="JSON", help="A job of the plan.")] = "",
    tier: TierText = None,
    filter_text: FilterText = "",
    vllm: Vllm = "",
) -> None:
    """Name what the environments of these cells are made from; tell the workflow, in GITHUB_OUTPUT, as `key`."""
    from runner.ci import asking

    options = _options(job, tier, filter_text, vllm)
    key = asking.cache_key(chart(matrix_file, list(options.candidates)), options)
    if not step.append("GITHUB_OUTPUT", f"key={key}\n"):
        output.emit(key)
