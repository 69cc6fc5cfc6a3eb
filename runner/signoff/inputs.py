"""What a sign-off rests on, read from the `inputs/` of a bundle: never from anywhere else, so that it can be redone."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from runner import candidates, expectations, matrix, results
from runner import plan as planning
from runner.errors import UsageError
from runner.matrix import Matrix
from runner.model import Candidate, Cell, CellResult
from runner.nearest import hint, quoted
from runner.reports.text import one_line
from runner.signoff import consistency
from runner.signoff import policy as policies
from runner.signoff.policy import Policy

REQUEST = "request.json"
MATRIX = "matrix.yaml"
POLICY = "policy.yaml"
WAIVERS = "waivers.yaml"
PLAN = "plan.json"
RUNS = "runs"
SINCE = "since"


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
    (folder / REQUEST).write_bytes(_REQUEST.dump_json(request, indent=1) + b"\n")


def read(folder: Path, *, at: datetime | None = None) -> Inputs:
    """Read and check `inputs/`, as of another time if one is given; UsageError where its parts contradict it."""
    try:
        request = _REQUEST.validate_json((folder / REQUEST).read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(f"{REQUEST}: cannot be read: {str(error).splitlines()[0]}") from None
    if request.at.tzinfo is None or not 2000 <= request.at.year < 3000:
        raise UsageError(f"{REQUEST}: 'at' is no time of a sign-off, with its time zone")
    request = replace(request, at=(at or request.at).astimezone(UTC))
    folders = [folder / RUNS / str(number) for number, _ in enumerate(request.runs, 1)]
    plain = matrix.load(folder / MATRIX)
    chart = with_candidate(plain, request.vllm, folders)
    check_release(request.vllm, chart)
    waivers = folder / WAIVERS
    policy = policies.load(folder / POLICY, chart, request.vllm, waivers=waivers if waivers.exists() else None)
    asked = {cell.id: cell for requirement in policy.requirements for cell in requirement.cells}
    runs = tuple(_run(path, id_, request, chart, asked) for path, id_ in zip(folders, request.runs, strict=True))
    consistency.check_distinct([(run.id, run.digest) for run in runs])
    return Inputs(
        request=request,
        chart=chart,
        policy=policy,
        runs=runs,
        since=results.read(folder / SINCE) if request.since else (),
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


def _run(folder: Path, id_: str, request: Request, chart: Matrix, asked: Mapping[str, Cell]) -> Run:
    data = _bytes(folder / results.NAME, id_)
    rows = results.parse(data, f"{results.NAME} of run {one_line(id_)}")
    planned = planning.from_json(_bytes(folder / PLAN, id_)).planned
    consistency.check_rows(id_, planned, rows)
    consistency.check_same_cells(id_, planned, asked)
    today = request.at.date()
    return Run(
        id=id_,
        folder=f"{RUNS}/{folder.name}",
        rows={
            row.id: row
            for row in expectations.judged(
                rows, known=chart.known, expect=chart.expect, releases=chart.axes["vllm"], today=today
            )
            if row.axes.get("vllm") == request.vllm
        },
        digest=hashlib.sha256(data).hexdigest(),
    )


def _bytes(path: Path, id_: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"run {one_line(id_)} has no {path.name} that can be read ({error.strerror})") from None
