"""`runner history`, `runner trend` and `runner merge`: what runs say together."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runner import output
from runner.commands import arguments
from runner.commands.arguments import Json, MatrixFile
from runner.errors import NothingSelected, UsageError
from runner.model import AxisValue, How

if TYPE_CHECKING:
    from runner.history.store import History
    from runner.matrix import Matrix

HistoryFile = Annotated[
    Path | None,
    typer.Option(
        "--history",
        metavar="FILE",
        envvar="ATTNMATRIX_HISTORY",
        help="The history: by default history.sqlite in that folder.",
    ),
]
Runs = Annotated[Path, typer.Option("--runs", metavar="FOLDER", help="The folder of the run directories.")]
Buffer = Annotated[str, typer.Option("--buffer", metavar="NAME", help="Bad is only an overflow of this buffer.")]
HowIt = Annotated[How | None, typer.Option("--how", help="Bad is only an overflow that shows itself so.")]
FOLDER = Path("runs")


def add_to(app: typer.Typer) -> None:
    app.command()(history)
    app.command()(trend)
    app.command()(merge)


def history(
    cell: Annotated[str | None, typer.Argument(metavar="[CELL]", help="The id of a cell.")] = None,
    buffer: Buffer = "",
    how: HowIt = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Of its results, show so many.")] = 20,
    add: Annotated[
        list[Path] | None, typer.Option("--add", metavar="RUN", help="Add a run directory that is somewhere else.")
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make it anew from the run directories.")] = False,
    matrix_file: MatrixFile = None,
    history_file: HistoryFile = None,
    runs: Runs = FOLDER,
    as_json: Json = False,
) -> None:
    """Show what became of a cell over runs and releases: since when it fails, how often, how old the evidence is."""
    from runner.history import index, questions, show, story
    from runner.session import read_run

    with opened_with(history_file, runs, rebuild=rebuild, made=bool(add)) as opened:
        for run in add or ():
            output.note(f"{run}: {index.add(opened, run, read_run):,} cells")
        if cell is None:
            _summary(opened, as_json=as_json)
            return
        chart = arguments.chart(matrix_file, None)
        symptom = questions.Symptom(buffer, how.value if how else "")
        releases = tuple(map(str, chart.axes["vllm"]))
        found = story.tell(
            opened, cell, axes_of(cell, opened, chart), releases, symptom, datetime.now(UTC), chart.expect
        )
        if not found.results and not found.lines:
            raise NothingSelected(f"{cell}: no run has a result of it: `runner --filter {cell}` makes one")
    emit_json(story.as_json(found)) if as_json else output.emit_rich(show.story(found, limit))


def trend(
    by: Annotated[str, typer.Option("--by", metavar="run|day|release", help="What one line is.")] = "run",
    last: Annotated[int, typer.Option("--last", metavar="N", min=1, help="Only the newest N runs.")] = 30,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="How many cells each list names.")] = 10,
    matrix_file: MatrixFile = None,
    history_file: HistoryFile = None,
    runs: Runs = FOLDER,
    as_json: Json = False,
) -> None:
    """Show how verdicts went over runs, days or releases; the flakiest and slowest cells, and the oldest evidence."""
    from rich.console import Group

    from runner.history import index, questions, refusals, show, story, trends

    if by not in {way.value for way in trends.By}:
        raise UsageError(f"--by {by}: write run, day or release")
    with opened_with(history_file, runs) as opened:
        newest = [entry.run_id for entry in opened.runs() if Path(entry.path).parent.name != index.BISECTS][-last:]
        totals = [one for one in opened.totals() if one.run_id in set(newest)]
        records = opened.records(runs=newest)
    if not newest:
        raise NothingSelected(f"no run in {runs} has results yet: `runner --tier quick` makes some")
    if by != trends.By.RUN:  # a run has judged itself; what several say together is judged here
        chart = arguments.chart(matrix_file, None)
        releases = tuple(map(str, chart.axes["vllm"]))
        records = refusals.judged(records, chart.expect, releases)
    match trends.By(by):
        case trends.By.RUN:
            points = trends.by_run(totals)
        case trends.By.DAY:
            points = trends.by_day(records)
        case trends.By.RELEASE:
            points = trends.by_release(records, releases)
    rates = sorted((rate for rate in questions.rates(records, questions.Symptom()) if rate.flaky), key=_by_flakiness)
    paces = trends.paces(records)[:top]
    now = datetime.now(UTC)
    aged = [(one, questions.age_s(one, now)) for one in questions.newest_of_each(records)[:top]]
    if as_json:
        emit_json(
            {
                "by": by,
                "points": [
                    {"name": p.name, "at": p.at, "verdicts": p.verdicts, "evidence": p.evidence} for p in points
                ],
                "flakiest": [story.rate_as_json(rate) for rate in rates[:top]],
                "slowest": [
                    {"cell": p.cell, "evidence": p.evidence, "median_s": p.median_s, "p95_s": p.p95_s, "of": p.of}
                    for p in paces
                ],
                "oldest": [{**story.plain(one), "age_s": None if age != age else age} for one, age in aged],
            }
        )
        return
    parts: list[Any] = [show.points(points)] if points else []
    output.emit_rich(Group(*parts, "", show.flakiest(rates[:top]), "", show.slowest(paces), show.oldest(aged)))


def _by_flakiness(rate: Any) -> tuple[float, str]:
    """Nearest to now this way, now that way first."""
    return -min(rate.bad, rate.of - rate.bad) / rate.of, rate.cell


@contextmanager
def opened_with(file: Path | None, runs: Path, *, rebuild: bool = False, made: bool = False) -> "Iterator[History]":
    """The history with every run of the folder in it; with `made`, the folder need not be there yet."""
    from runner.history import index, store
    from runner.session import read_run

    if not runs.is_dir() and not made:
        raise UsageError(
            f"{runs}: no such folder: --runs names the one that has the run directories, and `runner` makes runs/"
        )
    with store.opened(file or runs / index.FILE) as opened:
        (index.rebuild if rebuild else index.catch_up)(opened, runs, read_run, output.note)
        yield opened


def axes_of(cell: str, opened: "History", chart: "Matrix") -> dict[str, AxisValue]:
    """Of a cell that the history or the matrix has; NothingSelected names the nearest one."""
    from runner import select

    if found := opened.axes().get(cell):
        return found
    cells = [one for one in select.select(chart, filters=[cell]) if one.id == cell]
    if not cells:
        raise UsageError(f"{cell!r} is no id of a cell: give one as `runner list` prints it")
    return dict(cells[0].axes)


def _summary(opened: "History", *, as_json: bool) -> None:
    """What is in the history, and what to ask it."""
    entries, cells = opened.runs(), len(opened.axes())
    if as_json:
        emit_json(
            {
                "runs": [{"run_id": e.run_id, "path": e.path, "started_at": e.started_at} for e in entries],
                "cells": cells,
            }
        )
        return
    output.emit(f"{len(entries):,} runs, {cells:,} cells with results")
    if entries:
        output.emit(f"from {entries[0].started_at[:16]} to {entries[-1].started_at[:16]} UTC")
    output.note("next: runner history CELL, runner trend")


def emit_json(data: object) -> None:
    output.emit_json(json.dumps(data, indent=1))


def merge(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The new run directory.")],
    run_directories: Annotated[list[Path], typer.Argument(metavar="RUN", help="Whole run directories.")],
) -> None:
    """Join runs of several machines or shards into one; results that disagree are refused and named."""
    from runner import merge as joining

    raise typer.Exit(joining.merge(out, run_directories))
