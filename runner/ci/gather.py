"""Puts the runs of a workflow's jobs together, against their plan: what did not come back is a result too.

plan/jobs.json, plan/<job>.json           what `runner ci plan` wrote
runs/run-<job>-<attempt>/                 the run directory of a job, as it was uploaded; its run.json has the attempt
merged/<side>/results.json, junit.xml ... one run for each side, made here
merged/jobs.json                          how each job came out
"""

import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from runner import candidates, outcome, results, rundir
from runner import plan as planning
from runner.ci.jobs import JOBS, Job, Side
from runner.errors import RunnerError, UsageError
from runner.matrix import Matrix
from runner.model import CellResult, State
from runner.nearest import quoted
from runner.plan import Plan, Planned
from runner.reports import files
from runner.reports.text import count

JOBS_FILE, MATRIX, PLAN = "jobs.json", "matrix.yaml", "plan.json"
_RUN = re.compile(r"run-([a-z0-9][a-z0-9_.]*)-([1-9][0-9]{0,3})")

Read = Callable[[Path], Sequence[CellResult]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Came:
    """What came back of one job."""

    job: Job
    planned: int
    attempt: int = 0
    """Of the workflow run, whose directory counts; 0 where none came back."""
    arrived: int = 0
    """Cells with a result that it may have."""
    troubles: tuple[str, ...] = ()
    """What is wrong with what came back, for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """The jobs of a workflow run, and the results by side, each in the order of its plan."""

    came: tuple[Came, ...]
    rows: Mapping[Side, tuple[CellResult, ...]] = field(default_factory=dict)

    @property
    def all_rows(self) -> tuple[CellResult, ...]:
        """Of both sides: the same cell may be in both, with other evidence."""
        return tuple(row for rows in self.rows.values() for row in rows)

    @property
    def troubles(self) -> tuple[str, ...]:
        return tuple(f"{came.job.name}: {trouble}" for came in self.came for trouble in came.troubles)


_CAME = TypeAdapter(tuple[Came, ...])


def keep_plan(where: Path, made: Sequence[tuple[Job, Plan]], matrix_file: Path, chart: Matrix) -> None:
    """Write what the jobs are, which cells each has, and the matrix that they are of."""
    where.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(matrix_file, where / MATRIX)
    candidates.keep(chart, where)
    results.write_atomically(where / JOBS_FILE, JOBS.dump_json(tuple(job for job, _ in made), indent=1).decode())
    for job, plan in made:
        results.write_atomically(where / f"{job.name}.json", planning.to_json(plan))


def kept_plan(where: Path) -> tuple[tuple[Job, Plan], ...]:
    """Read it back; UsageError where there is none."""
    path = where / JOBS_FILE
    try:
        jobs = JOBS.validate_json(path.read_bytes())
        return tuple(
            (job, planning.from_json((where / f"{job.name}.json").read_bytes(), name=str(where / f"{job.name}.json")))
            for job in jobs
        )
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}): `runner ci plan --out DIR` writes it") from None
    except ValidationError:
        raise UsageError(f"{path}: is no plan of jobs") from None
    return tuple((job, planning.read(where / f"{job.name}.json")) for job in jobs)


def gather(
    made: Sequence[tuple[Job, Plan]], runs: Path, read: Read, *, untaken: Sequence[str] = (), offline_why: str = ""
) -> Gathered:
    """The results of all jobs; `untaken` are those that no machine took in time, and `offline_why` says so."""
    if unknown := set(untaken) - {job.name for job, _ in made}:
        raise UsageError(f"--untaken names {quoted(sorted(unknown)[0])}, which is no job of the plan")
    came: list[Came] = []
    rows: dict[Side, list[CellResult]] = {}
    for job, plan in made:
        if job.name in untaken:
            job = replace(job, offline=offline_why or "no machine took the job in time")
        one, found = _of(job, plan, runs, read)
        came.append(one)
        rows.setdefault(job.side, []).extend(found)
    by_side = {side: tuple(rows[side]) for side in Side if side in rows}
    for found_rows in by_side.values():
        outcome.totals(found_rows, planned=len(found_rows))  # no cell twice
    return Gathered(came=tuple(came), rows=by_side)


def _of(job: Job, plan: Plan, runs: Path, read: Read) -> tuple[Came, list[CellResult]]:
    """A row for each planned cell: the one that came back where it may be, else why there is none."""
    attempt, place, troubles = _newest(runs, job.name)
    came = Came(job=job, planned=len(plan.planned), attempt=attempt, troubles=troubles)
    arrived: dict[str, CellResult] = {}
    why = f"the job {job.name} left no results: its log says why"
    if place is not None:
        try:
            arrived = {row.id: row for row in read(place)}
        except RunnerError as error:
            came = replace(came, troubles=(*troubles, f"{error}"))
    rows = [_row(one, arrived.get(one.cell.id), job, why) for one in plan.planned]
    strangers = arrived.keys() - {one.cell.id for one in plan.planned}
    if strangers:
        told = f"{count(len(strangers), 'result')} of cells that it was not asked for, as {quoted(min(strangers))}"
        came = replace(came, troubles=(*came.troubles, told))
    if place is None and not job.offline:
        came = replace(came, troubles=(*came.troubles, "left no results"))
    kept = sum(row is arrived.get(row.id) for row in rows)
    return replace(came, arrived=kept), rows


def _newest(runs: Path, name: str) -> tuple[int, Path | None, tuple[str, ...]]:
    """The directory of a job's last attempt that left one, and why others do not count.

    Which attempt it is says the run itself, and never the name under which it was uploaded; nothing is newer than the
    attempt that asks, where one does.
    """
    found: dict[int, list[Path]] = {}
    troubles = []
    for path in sorted(runs.glob("run-*")) if runs.is_dir() else ():
        match = _RUN.fullmatch(path.name)
        if not match or match[1] != name or not path.is_dir():
            continue
        try:
            attempt = _attempt(path)
        except UsageError as error:
            troubles.append(f"{error}")
            continue
        found.setdefault(attempt, []).append(path)
        if attempt and str(attempt) != match[2]:
            troubles.append(f"{path.name} is of attempt {attempt}, whatever its name says")
    for attempt, paths in list(found.items()):
        if len(paths) > 1:
            troubles.append(
                f"{' and '.join(path.name for path in paths)} say that they are of one attempt: none counts"
            )
            del found[attempt]
    newest = max(found, default=0)
    return newest, found[newest][0] if found else None, tuple(troubles)


def _attempt(path: Path) -> int:
    """What a run says of itself; UsageError where this workflow run can have none that is so."""
    workflow, now = rundir.here()
    said = rundir.asked(path)
    if now and said.workflow != workflow:
        raise UsageError(f"{path.name} is of workflow run {said.workflow}, and this is {workflow}: it does not count")
    if now and not 0 < said.attempt <= now:
        raise UsageError(f"{path.name} says that it is of attempt {said.attempt}, and this is {now}: it does not count")
    return said.attempt


def _row(one: Planned, found: CellResult | None, job: Job, why: str) -> CellResult:
    """A job on a GPU machine gives evidence `device` and nothing else, a hosted one anything but that."""
    if one.cell.unsupported:
        return results.bare(one, State.UNSUPPORTED, one.cell.unsupported)
    if found is None:
        return results.bare(one, State.SKIPPED, job.offline) if job.offline else results.bare(one, State.NOT_RUN, why)
    if job.side.takes(found.evidence) or found.state in {State.SKIPPED, State.NOT_RUN, State.INFRA}:
        return found
    if job.side is Side.DEVICE:
        return results.bare(
            one, State.SKIPPED, f"the machine showed no {one.cell.axes['arch']} GPU: it ran {found.evidence}"
        )
    return results.bare(
        one, State.MISSING, f"a job without a GPU says that it has evidence {found.evidence}: not believed"
    )


def keep(where: Path, found: Gathered, plan_directory: Path, *, title: str) -> None:
    """Write the merged runs, each with its plan and matrix as any run has them, and how the jobs came out."""
    shutil.rmtree(where, ignore_errors=True)
    made = kept_plan(plan_directory)
    for side, rows in found.rows.items():
        planned = tuple(one for job, plan in made if job.side is side for one in plan.planned)
        results.write_atomically(where / side.value / PLAN, planning.to_json(Plan(planned)))
        for name in (MATRIX, candidates.FILE):
            if (plan_directory / name).exists():
                shutil.copyfile(plan_directory / name, where / side.value / name)
        files.write(where / side.value, rows, exit_code=code(rows), title=f"{title}, {NAMES[side]}")
    results.write_atomically(where / JOBS_FILE, _CAME.dump_json(found.came, indent=1).decode())


def kept(where: Path, *, or_nothing: bool = False) -> Gathered:
    """Read back what `keep` wrote; UsageError where there is none, unless a job before it explains that."""
    path = where / JOBS_FILE
    try:
        came = _CAME.validate_json(path.read_bytes())
    except OSError as error:
        if or_nothing:
            return Gathered(came=())
        raise UsageError(f"{path}: cannot be read ({error.strerror}): `runner ci gather` writes it") from None
    except ValidationError:
        raise UsageError(f"{path}: is not what `runner ci gather` writes") from None
    return Gathered(
        came=came, rows={side: results.read(where / side) for side in Side if (where / side.value).is_dir()}
    )


NAMES = {Side.DEVICE: "on GPUs", Side.HOSTED: "without a GPU"}


def code(rows: Iterable[CellResult]) -> int:
    """What these results alone would make a run exit with."""
    return outcome.exit_code(row.verdict for row in rows)
