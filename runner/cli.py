"""The commands; each is a few steps, and every fatal error becomes a message and an exit code in `main`."""

import contextlib
import errno
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from runner import listing, muted, output, select
from runner import plan as planning
from runner.commands import arguments, bisect, ci, compare, history, known, signoff
from runner.commands.arguments import (
    Address,
    Candidates,
    Engine,
    Evidence,
    Filters,
    Json,
    Limit,
    MatrixFile,
    RunKnownCrashes,
    Seed,
    ShardPart,
    Tier,
    Version,
    counted,
    seconds,
)
from runner.commands.schemas import SchemaOf
from runner.errors import RunnerError, UsageError
from runner.options import DEFAULT_TIMEOUT_S, EngineName, Obtained, RunOptions, Sanitizer, default_matrix

_EXIT_CODES = """[bold]Exit codes[/bold]
  0  everything as expected
  1  product trouble: fail, overflow, crash, timeout, oom, refused! or xpass
  2  usage or matrix error
  3  only machine or harness trouble
  4  stopped early, can be resumed
  5  nothing selected
130  interrupted"""

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""What a disk says wherever something is written: full, over quota, read-only."""

app = typer.Typer(
    name="runner",
    epilog=_EXIT_CODES,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
env = typer.Typer(
    help="Build, list and remove what cells run in: environments that cells run in.", no_args_is_help=True
)
app.add_typer(env, name="env")
for topic in (history, bisect, compare, known, signoff, ci):
    topic.add_to(app)


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    matrix_file: MatrixFile = None,
    filters: Filters = None,
    tier: Tier = None,
    candidate: Candidates = None,
    shard: ShardPart = None,
    engine: Engine = EngineName.AUTO,
    address: Address = "auto",
    evidence: Evidence = Obtained.BEST,
    require_device: Annotated[
        bool,
        typer.Option("--require-device", help="--evidence device, and exit code 3 where a cell is skipped."),
    ] = False,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Workers at the same time.")] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, callback=seconds, help="For one cell.")
    ] = DEFAULT_TIMEOUT_S,
    silence: Annotated[
        float | None,
        typer.Option("--silence", metavar="SECONDS", min=0.1, callback=seconds, help="For a cell that says nothing."),
    ] = None,
    limit: Limit = None,
    reruns: Annotated[
        int, typer.Option("--reruns", metavar="N", min=0, help="Run a cell with product trouble again, to tell flakes.")
    ] = 0,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="The run directory itself.")] = None,
    as_json: Json = False,
    seed: Seed = 0,
    no_known: Annotated[bool, typer.Option("--no-known", help="The naked truth: known issues do not count.")] = False,
    known_crashes: RunKnownCrashes = False,
    quiet: Annotated[int, counted("--quiet", "-q", help_="Say less.")] = 0,
    verbose: Annotated[int, counted("--verbose", "-v", help_="Say more.")] = 0,
    _version: Version = False,
) -> None:
    """Run the compatibility matrix of vLLM's chunked local attention, or with a command, do something else about it."""
    if context.invoked_subcommand is not None:
        _refuse_misplaced_options(context)
        return
    if require_device and evidence is Obtained.EMULATED:
        raise UsageError("--require-device and --evidence emulated: no GPU is used then; leave one of them out")
    options = RunOptions(
        matrix=matrix_file or default_matrix(),
        filters=tuple(filters or ()),
        tier=tier,
        candidates=tuple(candidate or ()),
        shard=select.parse_shard(shard) if shard is not None else None,
        engine=engine,
        address=address,
        evidence=Obtained.DEVICE if require_device else evidence,
        require_device=require_device,
        jobs=jobs,
        timeout_s=timeout,
        silence_s=silence or 0.0,
        reruns=reruns,
        limit_s=limit,
        out=out,
        json=as_json,
        seed=seed,
        known=not no_known,
        known_crashes=known_crashes,
        verbosity=verbose - quiet,
    )
    from runner import session

    raise typer.Exit(session.run(options))


@app.command()
def plan(
    matrix_file: MatrixFile = None,
    filters: Filters = None,
    tier: Tier = None,
    candidate: Candidates = None,
    shard: ShardPart = None,
    engine: Engine = EngineName.AUTO,
    address: Address = "auto",
    evidence: Evidence = Obtained.BEST,
    known_crashes: RunKnownCrashes = False,
    as_json: Json = False,
    github: Annotated[
        bool, typer.Option("--github", help="As the jobs of a workflow: JSON for its matrix, one job for each machine.")
    ] = False,
    machines: Annotated[
        str, typer.Option("--machines", metavar="ARCHS", help="With --github: archs of GPU machines, as sm90,sm100.")
    ] = "",
) -> None:
    """Show what would run, where, and why not."""
    if github:
        ci.show_jobs(arguments.chart(matrix_file, candidate), filters, tier, machines)
        return
    from runner import expectations, machine

    cells = arguments.selected(matrix_file, filters, tier, candidate, shard)
    on = machine.choose(engine, address)
    output.note(f"engine {on.engine}: {on.why}")
    counting = () if known_crashes else arguments.chart(matrix_file, candidate).known
    made = machine.planned(cells, on, evidence).skipping(expectations.unwanted(counting, expectations.today()))
    if as_json:
        output.emit_json(json.dumps(listing.as_json(made, on.engine), indent=1))
    else:
        output.emit_rich(listing.table(made, on.engine))


@app.command("list")
def list_(
    matrix_file: MatrixFile = None,
    filters: Filters = None,
    tier: Tier = None,
    candidate: Candidates = None,
    shard: ShardPart = None,
    as_json: Json = False,
) -> None:
    """Print the ids of the cells, or with --json the cells as `pytest cases --cells FILE` reads them."""
    cells = arguments.selected(matrix_file, filters, tier, candidate, shard)
    made = planning.make_plan(cells, device_archs=frozenset())
    if as_json:
        output.emit_json(planning.to_json(made).rstrip())
    else:
        output.emit("\n".join(cell.id for cell in cells))
    output.note(listing.summary(made))


@app.command()
def schema(
    of: Annotated[SchemaOf, typer.Argument(metavar="matrix|policy|waivers", help="Of which file.")] = SchemaOf.MATRIX,
) -> None:
    """Print the JSON schema of matrix.yaml, of a policy or of a file of waivers, for editors."""
    output.emit_json(json.dumps(of.schema, indent=2))


@app.command()
def report(
    run_directory: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, such as runs/latest.")],
    as_json: Json = False,
) -> None:
    """Show the results of a run again, and write its reports anew."""
    from runner import session

    raise typer.Exit(session.report(run_directory, json=as_json))


@app.command()
def overflows(
    run_directories: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run directories; of a cell in several, the last one counts.")
    ],
) -> None:
    """Print, as Markdown, which overflow exists in which release and arch, and how it shows."""
    from runner import session

    raise typer.Exit(session.overflows(run_directories))


@app.command()
def resume(
    run_directory: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, such as runs/latest.")],
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Workers at the same time.")] = None,
    limit: Limit = None,
    as_json: Json = False,
    quiet: Annotated[int, counted("--quiet", "-q", help_="Say less.")] = 0,
    verbose: Annotated[int, counted("--verbose", "-v", help_="Say more.")] = 0,
) -> None:
    """Go on with a run that was interrupted, killed, or lost its machine."""
    from runner import session

    raise typer.Exit(session.resume(run_directory, jobs=jobs, json=as_json, verbosity=verbose - quiet, limit_s=limit))


@app.command()
def repro(
    cell: Annotated[str, typer.Argument(metavar="CELL", help="The id of a cell.")],
    matrix_file: MatrixFile = None,
    candidate: Candidates = None,
    engine: Engine = EngineName.AUTO,
    seed: Seed = 0,
    sanitize: Annotated[
        Sanitizer | None,
        typer.Option("--sanitize", help="On a GPU: under this tool of NVIDIA's compute-sanitizer. Slow."),
    ] = None,
) -> None:
    """Print and run the one command that shows a cell's result again."""
    from runner import repro as again

    chart = arguments.chart(matrix_file, candidate)
    raise typer.Exit(again.run(cell, chart=chart, engine=engine, seed=seed, sanitize=sanitize or ""))


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what this machine has, and what to do about what is missing."""
    from runner import doctor as examination

    raise typer.Exit(examination.run(json=as_json))


@env.command("build")
def env_build(
    releases: Annotated[
        list[str] | None, typer.Argument(metavar="[VLLM]...", help="Releases; by default, those that a run takes.")
    ] = None,
    matrix_file: MatrixFile = None,
    candidate: Candidates = None,
    engine: Engine = EngineName.AUTO,
    cuda: Annotated[bool, typer.Option("--cuda", help="The images for this machine's GPUs; needs no GPU.")] = False,
) -> None:
    """Build environments ahead of a run."""
    from runner import environments

    chart = arguments.chart(matrix_file, candidate)
    raise typer.Exit(environments.cli_build(chart, releases=tuple(releases or ()), engine=engine, cuda=cuda))


@env.command("list")
def env_list(as_json: Json = False) -> None:
    """Show the environments that are there and whether they are whole."""
    from runner import environments

    raise typer.Exit(environments.cli_list(json=as_json))


@env.command("clean")
def env_clean() -> None:
    """Remove the environments."""
    from runner import environments

    raise typer.Exit(environments.cli_clean())


def _refuse_misplaced_options(context: typer.Context) -> None:
    """`runner --filter x list` would list everything without a word."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            command = context.invoked_subcommand
            raise UsageError(f"{parameter.opts[0]} is for the command: write it after it, as `runner {command} ...`")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if muted.here():
        out, err = muted.Muted(sys.stdout), muted.Muted(sys.stderr)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                return _run(arguments)
            finally:
                with contextlib.suppress(BrokenPipeError):
                    out.finish()
                    err.finish()
    return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        app(args=arguments, prog_name="runner")
    except SystemExit as end:  # typer's own usage errors end so too
        return end.code if isinstance(end.code, int) else 0
    except RunnerError as error:
        print(f"{error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if error.errno not in _DISK:
            return _mistake()
        where = f"{error.filename}: " if error.filename else ""
        print(f"{where}{error.strerror}: free some space, or work where you may write", file=sys.stderr)
        return 3
    except Exception:  # noqa: BLE001 - Python's own exit code would be 1, which means trouble with the product
        return _mistake()
    return 0


def _mistake() -> int:
    traceback.print_exc()
    print("This is a mistake of the runner itself: please report it with the lines above.", file=sys.stderr)
    return 3
