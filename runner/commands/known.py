"""`runner known ...`: what is known, and the changes of it that a run calls for."""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runner import expectations, filters, matrix, output
from runner.commands.arguments import Filters, Json, MatrixFile
from runner.errors import NothingSelected, UsageError
from runner.matrix_document import ISSUE, PRODUCT_STATES
from runner.model import CellResult, State
from runner.nearest import hint, quoted
from runner.options import default_matrix

if TYPE_CHECKING:
    from runner.known.adding import Said

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, such as runs/latest.")]
Write = Annotated[bool, typer.Option("--write", help="Write the matrix; without it, the diff is only shown.")]
Issue = Annotated[str, typer.Option("--issue", metavar="URL", help="The link to the issue, or a page under docs/.")]
Because = Annotated[str, typer.Option("--because", metavar="TEXT", help="Why it is so, for who reads the entry.")]
Owner = Annotated[str | None, typer.Option("--owner", metavar="NAME", help="Who sees to it that the entry goes.")]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="END", help="The last day that it counts, as 2027-01-31, or the last release."),
]
Flaky = Annotated[bool, typer.Option("--flaky", help="The cells may pass as well.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    known = typer.Typer(help="Known issues: list them, and change them by what a run shows.", no_args_is_help=True)
    app.add_typer(known, name="known")
    for name, command in (("list", list_), ("add", add), ("update", update), ("prune", prune), ("import", import_)):
        known.command(name)(command)


def list_(matrix_file: MatrixFile = None, as_json: Json = False) -> None:
    """Show the known issues, what ends first at the top, and of how many cells each speaks."""
    from runner.known import overview

    chart = matrix.load(matrix_file or default_matrix())
    found = overview.lines(chart, today=expectations.today())
    if as_json:
        output.emit_json(json.dumps(overview.as_json(found, chart), indent=1))
        return
    if found:
        output.emit(overview.as_text(found, shutil.get_terminal_size().columns))
    output.note(overview.summary(found))


def add(
    run: Run,
    issue: Issue,
    because: Because,
    owner: Owner = None,
    until: Until = None,
    flaky: Flaky = False,
    filter_: Filters = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            "--any", metavar="AXIS,...", help="Say nothing of these axes: the entries speak of all their values."
        ),
    ] = None,
    matrix_file: MatrixFile = None,
    write: Write = False,
) -> None:
    """Add entries for the product trouble of a run that no known issue covers: the fewest that say it exactly."""
    from runner.known import adding, review

    file = review.opened(_to_change(matrix_file, write=write))
    unsaid = tuple(axis.strip() for words in leave_out or () for axis in words.split(","))
    for axis in unsaid:
        if axis not in file.chart.axes:
            raise UsageError(f"--any: unknown axis {quoted(axis)}{hint(axis, file.chart.axes)}")
    said = _said(file.chart, issue, because, owner, until, flaky=flaky)
    rows = _rows(run, file.chart, filter_)
    change = adding.add(rows, file.chart, said, today=expectations.today(), leaving_out=unsaid)
    review.present(file, change, rows, today=expectations.today(), write=write)


def update(
    run: Run,
    issue: Issue,
    owner: Owner = None,
    until: Until = None,
    filter_: Filters = None,
    matrix_file: MatrixFile = None,
    write: Write = False,
) -> None:
    """Fit the entries of one issue to a run: out of where it is over, into where it shows; and give them a new end."""
    from runner.known import entries, review, widening

    file = review.opened(_to_change(matrix_file, write=write))
    _check_words(owner=owner)
    end = entries.ends(until, file.chart)
    rows = _rows(run, file.chart, filter_)
    change = widening.update(
        rows,
        file.chart,
        issue,
        today=expectations.today(),
        until=(end[0], end[1]) if end[0] is not None else None,
        owner=owner,
    )
    review.present(file, change, rows, today=expectations.today(), write=write)


def prune(run: Run, filter_: Filters = None, matrix_file: MatrixFile = None, write: Write = False) -> None:
    """Take entries out of exactly the cells in which a run shows that they are over; what it did not see stays."""
    from runner.known import narrowing, review

    file = review.opened(_to_change(matrix_file, write=write), idle=True)
    rows = _rows(run, file.chart, filter_)
    change = narrowing.prune(rows, file.chart, today=expectations.today())
    review.present(file, change, rows, today=expectations.today(), write=write)


def import_(
    list_file: Annotated[Path, typer.Argument(metavar="FILE", help="A list of globs and states, as deqp-runner's.")],
    issue: Issue,
    because: Because,
    owner: Owner = None,
    until: Until = None,
    flaky: Flaky = False,
    state: Annotated[
        str, typer.Option("--state", metavar="STATE", help="Of a line that has none: fail, crash, timeout ...")
    ] = "fail",
    matrix_file: MatrixFile = None,
    write: Write = False,
) -> None:
    """Add entries for what a text list names: a glob over ids a line, as `*-sm90-*,Fail`."""
    from runner.known import deqp, review

    if state.lower() not in PRODUCT_STATES:
        raise UsageError(f"--state: unknown state {quoted(state)}{hint(state, sorted(PRODUCT_STATES))}")
    file = review.opened(_to_change(matrix_file, write=write))
    said = _said(file.chart, issue, because, owner, until, flaky=flaky)
    lines = deqp.read(list_file, otherwise=State(state.lower()))
    change = deqp.entries(lines, list_file, file.chart, said, today=expectations.today())
    review.present(file, change, (), today=expectations.today(), write=write)


def _said(
    chart: matrix.Matrix, issue: str, because: str, owner: str | None, until: str | None, *, flaky: bool
) -> "Said":
    """What an entry is to say; UsageError where the matrix would not take it."""
    from runner.known import adding, entries

    if not re.match(ISSUE, issue):
        example = "https://github.com/owner/name/issues/1"
        raise UsageError(f"--issue must be a link such as {example} or a page under docs/, not {quoted(issue)}")
    _check_words(issue=issue, because=because, owner=owner)
    end, after = entries.ends(until, chart)
    return adding.Said(issue=issue, because=because, owner=owner or "", until=end, after=after, flaky=flaky)


def _to_change(matrix_file: Path | None, *, write: bool) -> Path:
    """The matrix to change. The one that ships with the package is only looked at, unless somebody names it."""
    path = matrix_file or default_matrix()
    if write and matrix_file is None and path.is_absolute():
        raise UsageError(f"there is no matrix.yaml here, and {path} is not written unasked: give --matrix FILE")
    return path


def _check_words(**words: str | None) -> None:
    for name, text in words.items():
        if text is not None and not (text.strip() and text.isprintable()):
            raise UsageError(f"--{name} must be a line of text that can be printed, not {quoted(text)}")


def _rows(run: Path, chart: matrix.Matrix, texts: Sequence[str] | None) -> tuple[CellResult, ...]:
    """The results of a run that pass the filters; a note where some are not of cells of the matrix."""
    from runner import results

    rows = results.read(run)
    wanted = [filters.parse(text, chart.axes) for text in texts or ()]
    found = tuple(
        row
        for row in rows
        if all(f.matches(row.id) and all(f.lets(axis, v) for axis, v in row.axes.items()) for f in wanted)
    )
    if not found:
        raise NothingSelected(f"{run}: no result passes the filters" if rows else f"{run}: has no results")
    outside = sum(any(row.axes.get(axis) not in values for axis, values in chart.axes.items()) for row in found)
    if outside:
        of = f"{outside:,} of {len(found):,} results"
        output.note(f"left out: {of}, of no cell of the matrix, such as a candidate's")
    return found
