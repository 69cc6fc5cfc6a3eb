"""One run, from what was asked to the exit code; and a run shown again."""

import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner import (
    __version__,
    backends,
    candidates,
    dispatch,
    expectations,
    journal,
    matrix,
    outcome,
    output,
    results,
    rundir,
    select,
    standing,
)
from runner import plan as planning
from runner.engines.base import Engine
from runner.environments import fitting
from runner.errors import MachineError
from runner.history import index
from runner.logs import LogStore
from runner.machine import choose, default_jobs, facts_of, open_engine, planned, unheld, worth_starting
from runner.model import (
    Cell,
    CellFinished,
    CellOutcome,
    CellResult,
    Event,
    Order,
    RunFinished,
    RunStarted,
    State,
    WorkerReady,
    WorkerStarting,
)
from runner.options import Machine, RunOptions, default_matrix
from runner.reports import console as consoles
from runner.reports import files, progress, terminal
from runner.reports import overflows as overflow_tables
from runner.stop import StopSignal

MATRIX_COPY = "matrix.yaml"
PLAN = "plan.json"
EVENTS = "events.jsonl"

Judge = Callable[[Sequence[planning.Planned], Iterable[CellOutcome]], tuple[CellResult, ...]]
"""Results of planned cells from raw outcomes, known issues applied."""


Show = Callable[..., None]
"""Tells how a run went, as `_show` does."""


def run(options: RunOptions, *, show: Show | None = None) -> int:
    """Run what was asked and say how it went, or have `show` say it."""
    display = progress.make(consoles.make(sys.stderr), verbosity=options.verbosity)
    chart = matrix.load(options.matrix)
    chart = candidates.joined(chart, options.candidates, fitting.chooser(display.note, eager=True))
    cells = select.select(chart, filters=options.filters, tier_name=options.tier, shard=options.shard)
    on = choose(options.engine, options.address)
    display.note(f"engine {on.engine}: {on.why}")
    counting = chart.known if options.known and not options.known_crashes else ()
    skip = expectations.unwanted(counting, expectations.today())
    plan = planned(cells, on, options.evidence, options.seed).skipping(skip)
    directory = rundir.create(options.out)
    chart = candidates.keep(chart, directory.path)
    judge = _judge(chart, options.matrix, known=options.known, seed=options.seed)
    for note in (*candidates.notes(chart), *unheld(chart, plan)):
        display.note(note)
    shutil.copyfile(options.matrix, directory.path / MATRIX_COPY)
    results.write_atomically(directory.path / PLAN, planning.to_json(plan))
    rundir.keep(directory, options)  # last: a directory that has it can be gone on with
    rundir.link_latest(directory)
    return _carry_out(_Run(options, chart, on, plan, directory, display, judge, show or _show))


def resume(run_directory: Path, *, jobs: int | None, json: bool, verbosity: int, limit_s: float | None = None) -> int:
    """Go on with a run that ended early, however it ended: run what has no result, and say how all of it went.

    Cells that the machine could not run are tried again.
    """
    asked = rundir.asked(run_directory)
    jobs = jobs or asked.options.jobs
    options = replace(asked.options, jobs=jobs, json=json, verbosity=verbosity, limit_s=limit_s)
    chart = _kept_matrix(run_directory)
    display = progress.make(consoles.make(sys.stderr), verbosity=verbosity)
    on = choose(options.engine, options.address)
    display.note(f"engine {on.engine}: {on.why}")
    plan = replace(planning.read(run_directory / PLAN), seed=options.seed)
    judge = _judge(chart, options.matrix, known=options.known, seed=options.seed)
    directory = rundir.RunDirectory(asked.run_id, run_directory)
    return _carry_out(_Run(options, chart, on, plan, directory, display, judge, _show))


@dataclass(frozen=True)
class _Run:
    """A run that is ready to be carried out, or to be gone on with."""

    options: RunOptions
    chart: matrix.Matrix
    on: Machine
    plan: planning.Plan
    directory: rundir.RunDirectory
    display: progress.Display
    judge: Judge
    show: Show


def _carry_out(run: _Run) -> int:
    """Run the cells of the plan that have no result in the journal; write the reports, and show the outcome."""
    path, options, stop = run.directory.path, run.options, StopSignal()
    with rundir.held(path):
        done = {id_: found for id_, found in _last(path).items() if _has_result(found)}
        left = run.plan.without(done)
        if done:
            run.display.note(f"{len(done):,} cells have a result, {sum(len(order.cells) for order in left):,} are left")
        with (
            open_engine(
                run.on,
                run.chart,
                left,
                run.directory.run_id,
                run.display.note,
                log=path,
                require=lambda found: backends.require(left, found, options.matrix),
            ) as engine,
            stop.on_signals(),
            stop.after(options.limit_s),
        ):
            for left_over in engine.sweep():
                run.display.note(f"removed what a dead run left: {left_over}")
            _dispatch(run, left, engine, stop, _Watch(run, left))
        rows = run.judge(run.plan.planned, _last(path, tell=_nothing).values())  # what is damaged was told
        code = outcome.exit_code(
            (row.verdict for row in rows),
            interrupted=stop.requested and not stop.late,
            stopped_early=stop.late,
            lacking=_lacking(path, rows),
        )
        files.write(path, rows, exit_code=code, title=run.directory.run_id)
    run.show(rows, code, path, as_json=options.json)
    if stop.requested and run.show is _show:  # whoever else shows it says how to go on
        output.note(f"to go on: runner resume {shlex.quote(str(path))}")
    index.remember(path, rows, run.display.note)
    return code


def _has_result(found: CellOutcome) -> bool:
    """Whether a cell ran, and neither the runner nor its own cases say that the machine kept it from a result."""
    return not found.not_run and outcome.of(found)[0] is not State.INFRA


def _kept_matrix(run_directory: Path) -> matrix.Matrix:
    """The matrix that a run was made with, and its candidates; it was checked then, maybe less strictly than now."""
    chart = matrix.load(run_directory / MATRIX_COPY, idle=True)
    return candidates.join(chart, candidates.kept(run_directory))


def _nothing(_: str) -> None:
    pass


def _last(path: Path, tell: Callable[[str], None] = output.note) -> dict[str, CellOutcome]:
    """The last outcome of each cell that the journal of a run has, by its id."""
    if not (path / EVENTS).exists():
        return {}
    found = journal.read(path / EVENTS, tell)
    return {event.outcome.cell.id: event.outcome for event in found if isinstance(event, CellFinished)}


def report(run_directory: Path, *, json: bool) -> int:
    """Show a run again and write its reports anew."""
    rows = read_run(run_directory)
    code = outcome.exit_code((row.verdict for row in rows), lacking=_lacking(run_directory, rows))
    if run_directory.is_dir():
        try:
            files.write(run_directory, rows, exit_code=code, title=run_directory.resolve().name)
        except MachineError as error:  # it can be shown all the same
            output.note(f"the reports were not written anew: {error}")
    _show(rows, code, run_directory, as_json=json)
    return code


def _lacking(run_directory: Path, rows: Sequence[CellResult]) -> bool:
    """Whether the run was to have devices, and cells were skipped for want of one."""
    if not (run_directory / rundir.ASKED).exists() or not rundir.asked(run_directory).options.require_device:
        return False
    return any(row.state is State.SKIPPED and not row.cases and not row.known for row in rows)


def overflows(run_directories: Sequence[Path]) -> int:
    """Print the tables of which overflow exists where; of a cell in several runs, the last one counts."""
    rows = {row.id: row for directory in run_directories for row in read_run(directory)}
    output.emit(overflow_tables.render(tuple(rows.values())).rstrip())
    return 0


def read_run(run_directory: Path) -> Sequence[CellResult]:
    """The results of a run: from their file, or where it was killed from its journal."""
    if (run_directory / results.NAME).exists() or not (run_directory / EVENTS).exists():
        return results.read(run_directory)
    return judged(run_directory)


def judged(run_directory: Path) -> Sequence[CellResult]:
    """The results of a run made anew from its journal; the known issues count as of today."""
    plan = planning.read(run_directory / PLAN)
    asked = _asked(run_directory)
    judge = _judge(_kept_matrix(run_directory), asked.matrix, known=asked.known, seed=asked.seed)
    return judge(plan.planned, _last(run_directory).values())


def _asked(run_directory: Path) -> RunOptions:
    """What the run was asked for; of one from before that was kept, what its journal says of it."""
    if (run_directory / rundir.ASKED).exists():
        return rundir.asked(run_directory).options
    events = journal.read(run_directory / EVENTS)
    naked = any(isinstance(event, RunStarted) and "--no-known" in event.argv for event in events)
    return RunOptions(matrix=default_matrix(), known=not naked)


class _Watch:
    """Tells a display what a person wants to know of the events; verdicts, since a known issue is no alarm."""

    def __init__(self, run: "_Run", orders: tuple[Order, ...]) -> None:
        self._display, self._judge = run.display, run.judge
        self._planned = {one.cell.id: one for one in run.plan.planned}
        self._cells = sum(len(order.cells) for order in orders)

    def __enter__(self) -> "_Watch":
        self._display.start(self._cells)
        return self

    def __exit__(self, *_: object) -> None:
        self._display.stop()

    def see(self, event: Event) -> None:
        match event:
            case WorkerStarting(slot=slot, environment=environment):
                self._display.note(f"worker {slot + 1}: importing vllm {environment}")
            case WorkerReady(slot=slot, import_s=import_s):
                self._display.note(f"worker {slot + 1}: ready after {import_s:.1f} s")
            case CellFinished(outcome=one) if not one.not_run:
                (row,) = self._judge([self._planned[one.cell.id]], [one])
                self._display.cell_finished(row.verdict, row.id)


def _dispatch(run: _Run, orders: tuple[Order, ...], engine: Engine, stop: StopSignal, watch: _Watch) -> None:
    """Run the orders; the journal hears of everything first, and alone keeps it."""
    options, directory = run.options, run.directory
    with journal.Journal(directory.path / EVENTS) as events, watch:
        versions = {"attnmatrix": __version__}
        argv, planned = tuple(sys.argv[1:]), len(run.plan.planned)
        events.append(RunStarted(run_id=directory.run_id, argv=argv, versions=versions, planned=planned))

        def on_event(event: Event) -> None:
            events.append(event)
            watch.see(event)

        dispatch.run(
            orders,
            engine=engine,
            jobs=options.jobs or run.on.jobs or min(default_jobs(), worth_starting(orders)),
            patience=dispatch.Patience(start_s=run.on.start_s),
            timeout_s=options.timeout_s,
            silence_s=options.silence_s,
            reruns=options.reruns,
            on_event=on_event,
            stop=stop,
            logs=LogStore(directory.path),
            facts_of=facts_of(run.chart),
            places=run.on.places,
            keep=False,
        )
        events.append(RunFinished(stopped=stop.requested))


def _judge(chart: matrix.Matrix, matrix_file: Path, *, known: bool, seed: int = 0) -> Judge:
    """The line that shows a cell again names the matrix and the seed only where they are not the ones it has."""
    option = "" if matrix_file == default_matrix() else f"--matrix {shlex.quote(str(matrix_file))} "
    option += f"--seed {seed} " if seed else ""

    def repro_of(cell: Cell) -> str:
        return f"runner repro {option}{candidates.option(chart, cell.axes['vllm'])}{cell.id}"

    entries, today = chart.known if known else (), expectations.today()

    def judge(planned: Sequence[planning.Planned], outcomes: Iterable[CellOutcome]) -> tuple[CellResult, ...]:
        rows = results.build(
            planned,
            outcomes,
            known=entries,
            expect=chart.expect,
            before=chart.before,
            repro_of=repro_of,
            today=today,
        )
        return standing.told(rows, entries, chart, today)

    return judge


def _show(rows: Sequence[CellResult], code: int, where: Path, *, as_json: bool) -> None:
    if as_json:
        output.emit_json(results.to_json(rows).rstrip())
    else:
        console = consoles.make(sys.stdout)
        with console.capture() as shown:  # printed by `emit`, which does not mind a pipe that was closed
            terminal.show(console, rows, exit_code=code, where=str(where))
        output.emit(shown.get().rstrip("\n"))
