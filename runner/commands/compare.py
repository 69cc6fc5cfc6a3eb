"""`runner compare`: what two releases, candidates or runs differ in."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner import nearest, output
from runner.axes import AXES
from runner.commands.arguments import Json
from runner.errors import NothingSelected, UsageError
from runner.model import CellResult

if TYPE_CHECKING:
    from runner.reports import pull_request

_SIDE = "A run directory; with --in, a release or a candidate of that run."


def add_to(app: typer.Typer) -> None:
    """Registers the command."""

    @app.command()
    def compare(
        before: Annotated[str, typer.Argument(metavar="A", help=_SIDE)],
        after: Annotated[str, typer.Argument(metavar="B", help="The same, for what is judged against it.")],
        runs: Annotated[
            list[Path] | None,
            typer.Option(
                "--in",
                metavar="RUN",
                help="Where A and B both ran; may be repeated: of a cell in several runs, the last one counts.",
            ),
        ] = None,
        along: Annotated[
            str, typer.Option("--along", metavar="AXIS", help="The axis that A and B are values of.")
        ] = "vllm",
        filter_: Annotated[
            list[str] | None,
            typer.Option("--filter", "-f", metavar="EXPR", help="Only these cells, as of a run: `sm100`, `spec_k>=3`."),
        ] = None,
        as_json: Json = False,
        as_markdown: Annotated[
            bool, typer.Option("--markdown", help="Markdown for a pull request, short enough for a comment.")
        ] = False,
    ) -> None:
        """Say what B broke and fixed against A: by what happened, whatever known issues say.

        Exits with 1 where something got worse, with 3 where nothing did but cells that A has were lost to machine or
        harness trouble, with 5 where no cell was judged on both sides.
        """
        from runner import compare as comparing
        from runner.reports import comparison, console, pull_request

        if as_json and as_markdown:
            raise UsageError("--json and --markdown are two forms of the same: give one of them")
        if along not in AXES:
            raise UsageError(f"--along {along}: no such axis{nearest.hint(along, AXES)}")
        sides = _of_one_run(runs, before, after, along) if runs else _of_two_runs(before, after)
        found = comparing.compare(*_filtered(sides, filter_ or ()), along=along)
        title = f"{before} → {after}"
        if not runs and found.sides[0] and found.sides[0] != found.sides[1]:
            title += f" ({found.sides[0]} → {found.sides[1]})"
        if as_json:
            output.emit_json(comparison.to_json(found))
        elif as_markdown:
            name = " → ".join(found.sides) if found.along else f"{Path(before).name} → {Path(after).name}"
            setting = _setting([*(runs or ()), Path(after)])
            output.emit(pull_request.markdown(found, title=name, setting=setting).rstrip())
        else:
            screen = console.make(sys.stdout)
            with screen.capture() as shown:
                comparison.show(screen, found, title=title)
            output.emit(shown.get().rstrip("\n"))
        raise typer.Exit(found.exit_code)


def _setting(runs: Sequence[Path]) -> "pull_request.Setting":
    """What the run directories say of how they were made; of several, the last that says it."""
    from runner import matrix, rundir, session
    from runner.expand import by_default
    from runner.reports import pull_request

    for run in [run for run in reversed(runs) if (run / session.MATRIX_COPY).is_file()]:
        with contextlib.suppress(UsageError):  # of another version of the runner: the results can be read even so
            chart, options = matrix.load(run / session.MATRIX_COPY, idle=True), list[str]()
            if (run / rundir.ASKED).is_file():
                asked = rundir.asked(run).options
                options += ["--seed", str(asked.seed)] if asked.seed else []
                options += ["--matrix", asked.matrix.name] if asked.matrix.name != session.MATRIX_COPY else []
            return pull_request.Setting(loads=chart.loads, taken=by_default(chart), options=options)
    return pull_request.Setting()


def _filtered(sides: Sequence[Sequence[CellResult]], asked: Sequence[str]) -> list[list[CellResult]]:
    """What passes every filter, by the values that the results have; NothingSelected where nothing does."""
    from runner import filters
    from runner.reports import patterns

    axes = patterns.domain([row for side in sides for row in side])
    parsed = [filters.parse(text, axes) for text in asked]
    left = [
        [
            row
            for row in side
            if all(one.matches(row.id) and all(one.lets(*item) for item in row.axes.items()) for one in parsed)
        ]
        for side in sides
    ]
    if parsed and not any(left):
        raise NothingSelected(f"no cell of either side is {' and '.join(asked)}")
    return left


def _of_two_runs(before: str, after: str) -> list[Sequence[CellResult]]:
    from runner import session

    for side in (before, after):
        if not Path(side).exists():
            raise UsageError(
                f"{side}: no such run directory. To compare two releases or candidates of one run: "
                f"runner compare {before} {after} --in RUN"
            )
    return [session.read_run(Path(side)) for side in (before, after)]


def _of_one_run(runs: Sequence[Path], before: str, after: str, along: str) -> list[Sequence[CellResult]]:
    from runner import session

    rows = {row.id: row for run in runs for row in session.read_run(run)}
    values = list(dict.fromkeys(str(row.axes[along]) for row in rows.values()))
    for side in (before, after):
        if side not in values:
            where = ", ".join(map(str, runs))
            raise UsageError(f"{where}: no results with {along} {side}{nearest.hint(side, values)}")
    if before == after:
        raise UsageError(f"{before} twice: name two values of {along}, one for each side")
    return [[row for row in rows.values() if str(row.axes[along]) == side] for side in (before, after)]
