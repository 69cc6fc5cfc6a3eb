"""What a sign-off rests on, read from the `inputs/` of a bundle: never from anywhere else, so that it can be redone."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from runner import candidates, matrix, results
from runner import plan as planning
from runner.axes import LABEL
from runner.errors import UsageError
from runner.matrix import Matrix
from runner.model import Candidate, CellResult
from runner.nearest import hint, quoted
from runner.plan import Plan, Planned
from runner.reports.text import one_line
from runner.signoff import canonical, consistency, facts
from runner.signoff import policy as policies
from runner.signoff.policy import Policy

REQUEST = "request.json"
MATRIX = "matrix.yaml"
POLICY = "policy.yaml"
WAIVERS = "waivers.yaml"
PLAN = "plan.json"
RUNS = "runs"
SINCE = "since"
FORMAT = 2
"""Since 2, results and plans are written anew, and every file is what the runner writes of what it holds."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What was asked, and when: the rest of what a decision depends on."""

    attnmatrix: str
    """The version that made the bundle: another one may word its pages otherwise."""
    at: datetime
    vllm: str
    policy: str
    runs: tuple[str, ...]
    """Their ids, in the order in which they were given; the first is in runs/1."""
    since: str = ""
    """The id of the run that it is compared with; empty where there is none."""
    url: str = ""
    """Where the runs can be seen, such as a CI job."""
    format: int = 1
    """What a bundle holds and how it is written: FORMAT of the version that made it."""


_REQUEST = TypeAdapter(Request)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The results of one run for the release in question, known issues applied anew at the time of the sign-off."""

    id: str
    folder: str
    rows: Mapping[str, CellResult]
    digest: str
    """SHA-256 of results.json, in hex."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """Everything that a decision is made from."""

    request: Request
    chart: Matrix
    policy: Policy
    runs: tuple[Run, ...]
    since: tuple[CellResult, ...]
    digests: Mapping[str, str]
    """SHA-256 of each file, by its path in the bundle's inputs/."""

    @property
    def expected_files(self) -> set[str]:
        """The paths that may be in inputs/: nothing lies there that no one reads."""
        optional = {WAIVERS} | {f"{run.folder}/{candidates.FILE}" for run in self.runs}
        always = {REQUEST, MATRIX, POLICY} | {
            f"{run.folder}/{name}" for run in self.runs for name in (results.NAME, PLAN)
        }
        since = {f"{SINCE}/{results.NAME}"} if self.request.since else set()
        return always | since | (optional & self.digests.keys())


def write_request(folder: Path, request: Request) -> None:
    (folder / REQUEST).write_bytes(_written(request))


def _written(request: Request) -> bytes:
    return _REQUEST.dump_json(request, indent=1) + b"\n"


def read(folder: Path, *, at: datetime | None = None) -> Inputs:
    """Read and check `inputs/`, as of another time if one is given; UsageError where its parts contradict it."""
    try:
        text = (folder / REQUEST).read_bytes()
        request = _REQUEST.validate_json(text)
    except (OSError, ValidationError) as error:
        raise UsageError(f"{REQUEST}: cannot be read: {str(error).splitlines()[0]}") from None
    if request.at.tzinfo is None or not 2000 <= request.at.year < 3000:
        raise UsageError(f"{REQUEST}: 'at' is no time of a sign-off, with its time zone")
    if request.format != FORMAT:
        raise UsageError(
            f"{REQUEST}: the bundle is of format {request.format}, and this version reads {FORMAT}: verify it with the "
            f"version that made it, attnmatrix {one_line(request.attnmatrix)}"
        )
    canonical.check(REQUEST, text, _written(request))
    request = replace(request, at=request.at.astimezone(UTC))
    today = (at or request.at).astimezone(UTC).date()
    folders = [folder / RUNS / str(number) for number, _ in enumerate(request.runs, 1)]
    plain = matrix.load(folder / MATRIX)
    chart = with_candidate(plain, request.vllm, folders)
    check_release(request.vllm, chart)
    waivers = folder / WAIVERS
    policy = policies.load(folder / POLICY, chart, request.vllm, waivers=waivers if waivers.exists() else None)
    runs = tuple(_run(path, id_, request, plain, today) for path, id_ in zip(folders, request.runs, strict=True))
    consistency.check_distinct([(run.id, run.digest) for run in runs])
    consistency.check_together(row for run in runs for row in run.rows.values())
    return Inputs(
        request=replace(request, at=at.astimezone(UTC)) if at else request,
        chart=chart,
        policy=policy,
        runs=runs,
        since=_since(folder / SINCE) if request.since else (),
        digests={
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        },
    )


def with_candidate(chart: Matrix, vllm: str, folders: Sequence[Path]) -> Matrix:
    """The matrix with the candidate that is signed off, where it is one: the same in all runs."""
    found: dict[str, tuple[str, Candidate]] = {}
    for number, folder in enumerate(folders, 1):
        for one in candidates.kept(folder):
            said, first = found.setdefault(one.name, (f"run {number}", one))
            if (first.kind, first.digest, first.over) != (one.kind, one.digest, one.over):
                raise UsageError(
                    f"candidate {quoted(one.name)} is {first.digest} over {first.over} in {said}, and {one.digest} "
                    f"over {one.over} in run {number}: two things under one name cannot be signed off together"
                )
    return candidates.join(chart, [found[vllm][1]]) if vllm in found else chart


def check_release(vllm: str, chart: Matrix) -> None:
    """UsageError where the matrix has no such value."""
    if vllm not in chart.axes["vllm"]:
        raise UsageError(f"the matrix has no vllm {quoted(vllm)}{hint(vllm, chart.axes['vllm'])}")


def _run(folder: Path, id_: str, request: Request, plain: Matrix, today: date) -> Run:
    """One run, held against the matrix, against its own plan and against itself."""
    chart = with_all_candidates(plain, folder)
    plan_text, data = _bytes(folder / PLAN, id_), _bytes(folder / results.NAME, id_)
    planned = consistency.as_of_matrix(id_, planning.from_json(plan_text).planned, chart)
    if unused := {one.name for one in candidates.kept(folder)} - {one.cell.axes["vllm"] for one in planned}:
        raise UsageError(f"run {one_line(id_)}: the candidate {quoted(min(unused))} is in no plan")
    canonical.check(f"{PLAN} of run {one_line(id_)}", plan_text, planning.to_json(Plan(planned)).encode())
    rows = results.parse(data, f"{results.NAME} of run {one_line(id_)}")
    consistency.check_rows(id_, planned, rows, chart)
    consistency.check_together(rows)
    written = judged(id_, planned, rows, chart, request.at.date())
    canonical.check(f"{results.NAME} of run {one_line(id_)}", data, results.to_json(written).encode())
    now = written if today == request.at.date() else judged(id_, planned, rows, chart, today)
    return Run(
        id=id_,
        folder=f"{RUNS}/{folder.name}",
        rows={row.id: row for row in now if row.axes.get("vllm") == request.vllm},
        digest=hashlib.sha256(data).hexdigest(),
    )


def judged(
    id_: str, planned: Sequence[Planned], rows: Sequence[CellResult], chart: Matrix, today: date
) -> tuple[CellResult, ...]:
    """The rows of a run as this matrix makes them on that day; UsageError where one contradicts itself."""
    try:
        return facts.judged(planned, rows, chart, today)
    except UsageError as error:
        raise UsageError(f"run {one_line(id_)}: {error}") from None


def with_all_candidates(plain: Matrix, folder: Path) -> Matrix:
    """The matrix that the run was planned from: with its candidates, of which none may pass for a release."""
    path = folder / candidates.FILE
    kept = candidates.kept(folder)
    if path.is_file():
        canonical.check(f"{candidates.FILE} of {RUNS}/{folder.name}", path.read_bytes(), candidates.to_json(kept))
    for one in kept:
        if one.name in plain.axes["vllm"] or not re.fullmatch(LABEL, one.name):
            raise UsageError(f"{folder.name}/{candidates.FILE}: {quoted(one.name)} is no name of a candidate")
        if one.over not in plain.environments:
            raise UsageError(f"{folder.name}/{candidates.FILE}: the matrix has no vllm {quoted(one.over)}")
    if len({one.name for one in kept}) < len(kept):
        raise UsageError(f"{folder.name}/{candidates.FILE}: a candidate is there twice")
    return candidates.join(plain, kept)


def _since(folder: Path) -> tuple[CellResult, ...]:
    """The results that the runs are compared with: of one release, each in itself as it can be."""
    data = _bytes(folder / results.NAME, SINCE)
    rows = results.parse(data, f"{SINCE}/{results.NAME}")
    canonical.check(f"{SINCE}/{results.NAME}", data, results.to_json(rows).encode())
    check_since(rows)
    return rows


def check_since(rows: Sequence[CellResult]) -> None:
    """UsageError where such results are of several releases, or contradict themselves."""
    if len(said := {row.axes["vllm"] for row in rows}) != 1:
        raise UsageError(f"--{SINCE}: a run of one release is needed, and this one is of {len(said)}")
    for row in rows:
        try:
            facts.check(row)
        except UsageError as error:
            raise UsageError(f"--{SINCE}: {error}") from None


def _bytes(path: Path, id_: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"run {one_line(id_)} has no {path.name} that can be read ({error.strerror})") from None
