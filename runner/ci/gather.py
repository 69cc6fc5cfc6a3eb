"""Puts the runs of a workflow's jobs together, against their plan: what did not come back is a result too.

plan/jobs.json, plan/<job>.json           what `runner ci plan` wrote
runs/*/run.json, or runs/run.json         the run directories of jobs, as they were uploaded; download-artifact puts
                                          one that is alone into the path itself. The job and attempt are in run.json
merged/<side>/results.json, junit.xml ... one run for each side, made here
merged/jobs.json                          how each job came out

A plan may have no job, where it says why in plan/nothing.txt.
"""

import shlex
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from runner import candidates, expectations, matrix, outcome, results, rundir
from runner import plan as planning
from runner.ci.api import JobState
from runner.ci.jobs import JOBS, Job, Side
from runner.errors import RunnerError, UsageError
from runner.matrix import Matrix
from runner.model import CellResult, State, Verdict
from runner.nearest import quoted
from runner.plan import Plan, Planned
from runner.reports import files
from runner.reports.text import count

JOBS_FILE, MATRIX, PLAN, NOTHING = "jobs.json", "matrix.yaml", "plan.json", "nothing.txt"

Read = Callable[[Path], Sequence[CellResult]]
Number = Annotated[int, Field(ge=0, le=1_000_000_000)]
"""Of cells, or an attempt, where it is read back."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Came:
    """What came back of one job."""

    job: Job
    planned: Number
    attempt: Number = 0
    """Of the workflow run, whose directory counts; 0 where none came back."""
    arrived: Number = 0
    """Cells with a result that it may have."""
    skipped: Number = 0
    """Cells without evidence, because no machine was there that could give it."""
    because: str = ""
    """Why those are skipped."""
    troubles: tuple[str, ...] = ()
    """What is wrong with what came back, for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asker:
    """The attempt at a workflow run whose jobs are gathered; without numbers there is none, as on a desk."""

    workflow: int = 0
    attempt: int = 0
    states: Mapping[str, JobState] | None = None
    """How each job last stood, by its name in the plan; None where nobody asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """The jobs of a workflow run, and the results by side, each in the order of its plan."""

    came: tuple[Came, ...]
    rows: Mapping[Side, tuple[CellResult, ...]] = field(default_factory=dict)
    strays: tuple[str, ...] = ()
    """What is wrong with run directories that no job can be told for."""
    required: bool = False
    """Whether evidence that is missing is trouble."""
    nothing: str = ""
    """Why there was nothing to run; empty where there was."""

    @property
    def all_rows(self) -> tuple[CellResult, ...]:
        """Of both sides: the same cell may be in both, with other evidence."""
        return tuple(row for rows in self.rows.values() for row in rows)

    @property
    def troubles(self) -> tuple[str, ...]:
        return *self.strays, *(f"{came.job.name}: {trouble}" for came in self.came for trouble in came.troubles)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kept:
    """What jobs.json of the merged runs holds."""

    came: tuple[Came, ...]
    strays: tuple[str, ...]
    required: bool
    nothing: str = ""


_KEPT = TypeAdapter(_Kept)


def keep_plan(
    where: Path, made: Sequence[tuple[Job, Plan]], matrix_file: Path, chart: Matrix, *, nothing: str = ""
) -> None:
    """Write what the jobs are, which cells each has, and the matrix that they are of; or why there are none."""
    where.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(matrix_file, where / MATRIX)
    candidates.keep(chart, where)
    results.write_atomically(where / JOBS_FILE, JOBS.dump_json(tuple(job for job, _ in made), indent=1).decode())
    for job, plan in made:
        results.write_atomically(where / f"{job.name}.json", planning.to_json(plan))
    if nothing:
        results.write_atomically(where / NOTHING, nothing)


def kept_reason(where: Path) -> str:
    """Why a plan has no job; empty where it does not say so."""
    path = where / NOTHING
    return path.read_text(errors="replace").strip() if path.is_file() else ""


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


def kept_chart(where: Path) -> Matrix:
    """The matrix that the jobs are of, with the candidates of the plan; UsageError where it is not there."""
    return candidates.join(matrix.load(where / MATRIX, idle=True), candidates.kept(where))


def gather(
    made: Sequence[tuple[Job, Plan]],
    runs: Path,
    read: Read,
    asker: Asker,
    *,
    required: bool = False,
    nothing: str = "",
) -> Gathered:
    """The results of all jobs, each from the newest run that its attempts left."""
    found_runs, strays = _runs(runs, {job.name for job, _ in made}, asker)
    came: list[Came] = []
    rows: dict[Side, list[CellResult]] = {}
    for job, plan in made:
        one, found = _of(job, plan, found_runs.get(job.name, {}), read, asker.states)
        came.append(one)
        rows.setdefault(job.side, []).extend(found)
    by_side = {side: tuple(rows[side]) for side in Side if side in rows}
    if required and Side.DEVICE not in by_side:
        strays.append(
            "evidence of a GPU is required, and the plan has no job that could give it: name the archs of your "
            "machines in the variable of the repository that the workflow reads"
        )
    if not made and not nothing:
        strays.append("the plan has no job, and does not say why")
    for found_rows in by_side.values():
        outcome.totals(found_rows, planned=len(found_rows))  # no cell twice
    why = "" if made else nothing
    return Gathered(came=tuple(came), rows=by_side, strays=tuple(strays), required=required, nothing=why)


def judged(found: Gathered, chart: Matrix) -> Gathered:
    """With the refusals judged over all jobs of a side: one job alone may not have seen the release before pass."""
    return replace(found, rows={side: _refusals(rows, chart) for side, rows in found.rows.items()})


def _refusals(rows: Sequence[CellResult], chart: Matrix) -> tuple[CellResult, ...]:
    bare = [replace(row, verdict=expectations.naked(row.state), expected="") for row in rows]
    together = expectations.refusals(bare, chart.expect, chart.before)
    return tuple(new if old.verdict is Verdict.REFUSED else old for old, new in zip(rows, together, strict=True))


def _of(
    job: Job, plan: Plan, attempts: Mapping[int, Path], read: Read, states: Mapping[str, JobState] | None
) -> tuple[Came, list[CellResult]]:
    """A row for each planned cell: the one that came back where it may be, else why there is none."""
    newest = max(attempts, default=0)
    place, state, troubles = attempts.get(newest), (states or {}).get(job.name), []
    if states is not None and not job.offline and (state is None or state.status != "completed"):
        job = replace(job, offline=_untaken(job, state))
    arrived: dict[str, CellResult] = {}
    why = f"the job {job.name} left no results: its log says why"
    if place is not None:
        try:
            arrived = {row.id: row for row in read(place)}
        except RunnerError as error:
            troubles.append(f"{error}")
    elif not job.offline:
        troubles.append("left no results")
    rows = [_row(one, arrived.get(one.cell.id), job, why) for one in plan.planned]
    if strangers := arrived.keys() - {one.cell.id for one in plan.planned}:
        told = f"{count(len(strangers), 'result')} of cells that it was not asked for, as {quoted(min(strangers))}"
        troubles.append(told)
    if states is not None and place is not None and (state is None or state.conclusion != "success"):
        ended = state.conclusion if state and state.conclusion else "nothing so far"
        if not _explains(rows):
            # It was run again and died, or failed after its last cell: nothing good is believed of it.
            why = f"the job {job.name} ended as {ended}, and its newest results (attempt {newest}) do not say why"
            if not job.offline:
                troubles.append(f"ended as {ended}, and no result says why: its results do not count")
            rows, arrived = [_row(one, None, job, why) for one in plan.planned], {}
    skipped = [row for row in rows if row.state is State.SKIPPED]
    came = Came(
        job=job,
        planned=len(plan.planned),
        attempt=newest,
        arrived=sum(row is arrived.get(row.id) for row in rows),
        skipped=len(skipped),
        because=skipped[0].reason if skipped else "",
        troubles=tuple(troubles),
    )
    return came, rows


def _untaken(job: Job, state: JobState | None) -> str:
    if state is not None and state.status == "in_progress":
        return "its machine took the job late and is not done: `earlier` takes its results later"
    return "no machine took the job in time" + (f": {job.busy} ran other jobs" if job.busy else "")


def _explains(rows: Sequence[CellResult]) -> bool:
    """Whether a job with these results ends otherwise than well."""
    return code(rows) != 0 or any(row.state is State.SKIPPED for row in rows)


def _runs(place: Path, names: Collection[str], asker: Asker) -> tuple[dict[str, dict[int, Path]], list[str]]:
    """The run directory of each attempt at each job, and why others do not count.

    Which job and attempt one is of says the run itself, and never the name under which it was uploaded; nothing is
    newer than the attempt that asks, where one does.
    """
    found: dict[tuple[str, int], list[Path]] = {}
    troubles = []
    for path in _directories(place):
        try:
            found.setdefault(_whose(path, names, asker), []).append(path)
        except UsageError as error:
            troubles.append(f"{error}")
    by_job: dict[str, dict[int, Path]] = {}
    for (job, attempt), paths in found.items():
        if len(paths) > 1:
            both = " and ".join(path.name for path in paths)
            troubles.append(f"{both} say that they are of attempt {attempt} at the job {job}: none counts")
        else:
            by_job.setdefault(job, {})[attempt] = paths[0]
    return by_job, troubles


def _directories(place: Path) -> list[Path]:
    """Run directories, or what should be ones."""
    if not place.is_dir():
        return []
    inner = sorted(path for path in place.iterdir() if path.is_dir())
    if any((path / rundir.ASKED).exists() for path in inner):
        return inner
    return [place] if any(place.iterdir()) else []


def _whose(path: Path, names: Collection[str], asker: Asker) -> tuple[str, int]:
    """The job and the attempt that a run says it is of; UsageError where this workflow run can have none that is so."""
    said = rundir.asked(path)
    if said.options.job not in names:
        raise UsageError(f"{path.name} is of the job {quoted(said.options.job)}, which the plan has not: left out")
    if asker.attempt and said.workflow != asker.workflow:
        raise UsageError(
            f"{path.name} is of workflow run {said.workflow}, and this is {asker.workflow}: it does not count"
        )
    if asker.attempt and not 0 < said.attempt <= asker.attempt:
        raise UsageError(
            f"{path.name} says that it is of attempt {said.attempt}, and this is {asker.attempt}: it does not count"
        )
    return said.options.job, said.attempt


def _row(one: Planned, found: CellResult | None, job: Job, why: str) -> CellResult:
    """A job on a GPU machine gives evidence `device` and nothing else, a hosted one anything but that."""
    if one.cell.unsupported:
        return results.bare(one, State.UNSUPPORTED, one.cell.unsupported)
    if found is None:
        return _without(one, job, State.SKIPPED, job.offline) if job.offline else _without(one, job, State.NOT_RUN, why)
    if job.side.takes(found.evidence) or found.state in {State.SKIPPED, State.NOT_RUN, State.INFRA}:
        return found
    if job.side is Side.DEVICE:
        why = f"the machine showed no {one.cell.axes['arch']} GPU: it ran {found.evidence}"
        return _without(one, job, State.SKIPPED, why)
    why = f"a job without a GPU says that it has evidence {found.evidence}: not believed"
    return _without(one, job, State.MISSING, why)


def _without(one: Planned, job: Job, state: State, why: str) -> CellResult:
    """A row that says why there is no result, and how to get one."""
    vllm = str(one.cell.axes["vllm"])
    candidate = next((text for text in job.candidates if text.partition("=")[0] == vllm), "")
    option = f"--candidate {shlex.quote(candidate)} " if candidate else ""
    return replace(results.bare(one, state, why), repro=f"runner repro {option}{one.cell.id}")


def _settled(one: Planned, row: CellResult) -> Planned:
    """As a run itself plans it: a cell without evidence, because no machine was there, does not run."""
    return replace(one, skipped=row.reason) if row.state is State.SKIPPED else one


def keep(where: Path, found: Gathered, plan_directory: Path, *, title: str) -> None:
    """Write the merged runs, each with its plan and matrix as any run has them, and how the jobs came out."""
    shutil.rmtree(where, ignore_errors=True)
    made = kept_plan(plan_directory)
    for side, rows in found.rows.items():
        planned = [one for job, plan in made if job.side is side for one in plan.planned]
        settled = tuple(_settled(one, row) for one, row in zip(planned, rows, strict=True))
        results.write_atomically(where / side.value / PLAN, planning.to_json(Plan(settled)))
        for name in (MATRIX, candidates.FILE):
            if (plan_directory / name).exists():
                shutil.copyfile(plan_directory / name, where / side.value / name)
        files.write(where / side.value, rows, exit_code=code(rows), title=f"{title}, {NAMES[side]}")
    jobs = _Kept(came=found.came, strays=found.strays, required=found.required, nothing=found.nothing)
    results.write_atomically(where / JOBS_FILE, _KEPT.dump_json(jobs, indent=1).decode())


def kept(where: Path, *, or_nothing: bool = False) -> Gathered:
    """Read back what `keep` wrote; UsageError where there is none, unless a job before it explains that."""
    path = where / JOBS_FILE
    try:
        jobs = _KEPT.validate_json(path.read_bytes())
    except OSError as error:
        if or_nothing:
            return Gathered(came=())
        raise UsageError(f"{path}: cannot be read ({error.strerror}): `runner ci gather` writes it") from None
    except ValidationError:
        raise UsageError(f"{path}: is not what `runner ci gather` writes") from None
    return Gathered(
        came=jobs.came,
        strays=jobs.strays,
        required=jobs.required,
        nothing=jobs.nothing,
        rows={side: results.read(where / side) for side in Side if (where / side.value).is_dir()},
    )


NAMES = {Side.DEVICE: "on GPUs", Side.HOSTED: "without a GPU"}


def code(rows: Iterable[CellResult]) -> int:
    """What these results alone would make a run exit with."""
    return outcome.exit_code(row.verdict for row in rows)
