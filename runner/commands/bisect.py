"""`runner bisect`: since which release, or which version of a package, a cell is bad."""

from typing import Annotated

import typer

from runner import output
from runner.commands import arguments
from runner.commands.arguments import Engine, Evidence, Json, MatrixFile, Seed, counted, seconds
from runner.commands.history import FOLDER, Buffer, HistoryFile, HowIt, Runs, axes_of, emit_json, opened_with
from runner.errors import UsageError
from runner.options import DEFAULT_TIMEOUT_S, EngineName, Obtained, RunOptions, default_matrix


def add_to(app: typer.Typer) -> None:
    app.command()(bisect)


def bisect(
    cell: Annotated[str, typer.Argument(metavar="CELL", help="The id of a cell; its release does not matter.")],
    good: Annotated[str, typer.Option("--good", metavar="VERSION", help="One at which the cell is good.")],
    bad: Annotated[str, typer.Option("--bad", metavar="VERSION", help="One at which it is bad.")],
    over: Annotated[
        str, typer.Option("--over", metavar="PACKAGE", help="Versions of this package, over the cell's own release.")
    ] = "",
    among: Annotated[
        str, typer.Option("--among", metavar="V,V,...", help="With --over: the versions, oldest first.")
    ] = "",
    buffer: Buffer = "",
    how: HowIt = None,
    matrix_file: MatrixFile = None,
    engine: Engine = EngineName.AUTO,
    evidence: Evidence = Obtained.BEST,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, callback=seconds, help="For one cell.")
    ] = DEFAULT_TIMEOUT_S,
    seed: Seed = 0,
    history_file: HistoryFile = None,
    runs: Runs = FOLDER,
    as_json: Json = False,
    quiet: Annotated[int, counted("--quiet", "-q", help_="Say less.")] = 0,
) -> None:
    """Find the release, or the version of a package, since which a cell is bad; what has a result is not run again."""
    from runner import bisect as search
    from runner import bisect_points, packages
    from runner.history import index, questions

    if among and not over:
        raise UsageError("--among names versions of a package: say which one with --over")
    file = matrix_file or default_matrix()
    chart = arguments.chart(file, None)
    options = RunOptions(
        matrix=file,
        engine=engine,
        evidence=evidence,
        timeout_s=timeout,
        seed=seed,
        jobs=1,
        known=False,
        verbosity=-quiet,
    )
    # With another version of a package a release is no longer that release: what is found stays out of its history.
    folder = packages.FOLDER / "runs" if over else runs / index.BISECTS
    with opened_with(
        packages.FOLDER / index.FILE if over else history_file, folder if over else runs, made=True
    ) as opened:
        axes = axes_of(cell, opened, chart)
        if over:
            points, backwards = bisect_points.over_versions(
                chart, file, axes, over, among=among, ends=(good, bad), on=options
            )
        else:
            points, backwards = bisect_points.over_releases(chart, file, axes, good, bad)
        work = search.Bisection(
            history=opened,
            options=options,
            symptom=questions.Symptom(buffer, how.value if how else ""),
            folder=folder,
            tell=output.note if as_json else output.emit,
        )
        try:
            answer = search.run(points, work, over or "release", backwards=backwards)
        except KeyboardInterrupt:
            output.note("interrupted; to go on: the same command again, what has a result is not run again")
            raise
    emit_json(search.as_json(answer)) if as_json else output.emit("\n".join(["", *search.lines(answer)]))
    raise typer.Exit(0 if answer.exact else 3)
