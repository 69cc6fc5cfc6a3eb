"""Whether the parts of a run belong together, and to the matrix of the sign-off: UsageError where they do not."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from runner import expand
from runner.axes import NEUTRAL, PRODUCTS
from runner.errors import UsageError
from runner.matrix import Matrix
from runner.model import ENVIRONMENT, Candidate, CandidateKind, Cell, CellResult, Evidence, State
from runner.plan import Planned, make_plan
from runner.reports.summary import NOT_OBTAINED
from runner.reports.text import one_line
from runner.results import made_of

VERSIONS = ("vllm", "flashinfer", "torch")
_BUILD = re.compile(r"(\.post\d+)?(\+.*)?$")
"""What a version says of how it was built: 0.12.0.post2+cpu is a build of 0.12.0."""
_CANDIDATE = re.compile(r"(\w+) .* (\S+) over (\S+)", re.DOTALL)
"""As `str` writes one; where it is on a disk differs from machine to machine."""


def check_rows(run: str, planned: Sequence[Planned], rows: Sequence[CellResult], chart: Matrix) -> None:
    """A run has one result for each cell of its plan, in that order, with its axes, and of the evidence planned."""
    _check_ids(run, [one.cell.id for one in planned], [row.id for row in rows])
    for one, row in zip(planned, rows, strict=True):
        what = f"run {one_line(run)}: {one_line(row.id)}"
        if dict(row.axes) != dict(one.cell.axes):
            raise UsageError(f"{what} is planned with other axes than its result has")
        if row.evidence is not one.evidence:
            raise UsageError(f"{what} was planned as {one.evidence}, and its result says {row.evidence}")
        ran = str(row.resolved.get("backend", ""))
        if row.state is State.PASS and ran.lower() not in {"", row.axes["backend"]}:
            raise UsageError(f"{what} says {row.state}, and vLLM ran {one_line(ran)}")
        if why := wrong_environment(row, chart.environments[str(row.axes["vllm"])].candidate):
            raise UsageError(f"{what} {why}")


def _check_ids(run: str, planned: Sequence[str], there: Sequence[str]) -> None:
    if planned == there:
        return
    dropped = [one for one in planned if one not in set(there)]
    foreign = [one for one in there if one not in set(planned)]
    example = f": {one_line((dropped or foreign)[0])}" if dropped or foreign else ": their order, or a cell twice"
    raise UsageError(
        f"run {one_line(run)}: its results are not those of its plan of {len(planned):,} cells: "
        f"{len(dropped):,} dropped, {len(foreign):,} of another run{example}"
    )


def wrong_environment(row: CellResult, candidate: Candidate | None) -> str:
    """What a result says of where it was obtained that cannot be so, in a clause; empty where all of it can."""
    said = {name: row.environment.get(name, "") for name in ENVIRONMENT}
    if unknown := sorted(row.environment.keys() - set(ENVIRONMENT)):
        return f"says {one_line(unknown[0])} of its environment, which no result says"
    if row.state in NOT_OBTAINED and not any(said[name] for name in VERSIONS):
        return ""
    if lacking := [name for name in ("vllm", "torch") if not said[name]]:
        return f"does not say which {lacking[0]} it ran with"
    if why := _other_vllm(str(row.axes["vllm"]), said, candidate):
        return why
    return _on_a_device(row, said) if row.evidence is Evidence.DEVICE else _without_a_device(row, said)


def _other_vllm(vllm: str, said: Mapping[str, str], candidate: Candidate | None) -> str:
    """What ran must be the value of the vllm axis: a release of that version, or that candidate."""
    version = _BUILD.sub("", said["vllm"])
    if candidate is None:
        if said["candidate"]:
            return f"is of the release {vllm}, and ran the candidate {one_line(said['candidate'])}"
        return f"is of vllm {vllm}, and ran {one_line(said['vllm'])}" if version not in {"", vllm} else ""
    found = _CANDIDATE.fullmatch(said["candidate"])
    if found is None or found.groups() != (candidate.kind, candidate.digest, candidate.over):
        return f"is of the candidate {vllm} ({candidate}), and ran {one_line(said['candidate']) or 'a release'}"
    if candidate.kind is not CandidateKind.WHEEL and version not in {"", candidate.over}:
        return f"is of a candidate over {candidate.over}, and ran {one_line(said['vllm'])}"
    return ""


def _on_a_device(row: CellResult, said: Mapping[str, str]) -> str:
    lacking = [name for name in ("gpu", "driver") if not said[name]]
    if lacking:
        return f"says {Evidence.DEVICE} and names no {'GPU' if lacking[0] == 'gpu' else lacking[0]}"
    if not made_of(said):
        return f"says {Evidence.DEVICE} and neither which image nor which packages it ran with"
    if said["torch"].endswith("+cpu"):
        return f"says {Evidence.DEVICE} and ran torch {one_line(said['torch'])}, which has no GPU code"
    named = {arch for name, arch in PRODUCTS.items() if name in re.split(r"[^a-z0-9]+", said["gpu"].lower())}
    if named and row.axes["arch"] not in named:
        return f"is of {row.axes['arch']}, and ran on a {one_line(said['gpu'])}"
    return ""


def _without_a_device(row: CellResult, said: Mapping[str, str]) -> str:
    for name in ("gpu", "driver"):
        if said[name]:
            return f"says {row.evidence} and names the {name} {one_line(said[name])}"
    return ""


def check_distinct(runs: Sequence[tuple[str, str]]) -> None:
    """The same results twice would be two green runs out of one; a run is its id and the digest of its results."""
    for number, (id_, digest) in enumerate(runs):
        for other, other_digest in runs[:number]:
            if id_ == other or digest == other_digest:
                raise UsageError(f"run {one_line(id_)} is given twice, also as {one_line(other)}: a run counts once")


def check_together(rows: Iterable[CellResult]) -> None:
    """One environment is one: what was made of the same has the same versions, and no GPU's is one without a GPU."""
    seen: dict[tuple[str, str], CellResult] = {}
    for row in rows:
        made, said = made_of(row.environment), {name: row.environment.get(name, "") for name in VERSIONS}
        if row.state in NOT_OBTAINED and not any(said.values()):
            continue
        first = seen.setdefault((made, str(row.axes["vllm"])), row)
        for name in VERSIONS:
            one, other = first.environment.get(name, ""), said[name]
            if one != other:
                raise UsageError(
                    f"{one_line(row.id)} and {one_line(first.id)} ran in one environment ({one_line(made)}), and say "
                    f"{name} {one_line(other) or 'nothing'} and {one_line(one) or 'nothing'}"
                )
        if (row.evidence is Evidence.DEVICE) is not (first.evidence is Evidence.DEVICE):
            raise UsageError(
                f"{one_line(row.id)} and {one_line(first.id)} ran in one environment ({one_line(made)}), and only one "
                f"of them on a GPU"
            )


def as_of_matrix(run: str, planned: Iterable[Planned], chart: Matrix) -> tuple[Planned, ...]:
    """The plan with the cells of the matrix of the sign-off, where it has the same, of evidence that they can have."""
    found = []
    for one in planned:
        cell = _of_matrix(run, one.cell, chart)
        if other := _difference(cell, one.cell):
            raise UsageError(f"run {one_line(run)} was planned with another matrix: {one_line(cell.id)} has {other}")
        (usual,) = make_plan([cell], device_archs=frozenset()).planned
        on_device = one.evidence is Evidence.DEVICE and (usual.evidence is not Evidence.CPU or one.skipped)
        if one.evidence is not usual.evidence and not on_device:
            raise UsageError(
                f"run {one_line(run)}: {one_line(cell.id)} is planned as {one.evidence}, and such a cell is "
                f"{usual.evidence}{'' if usual.evidence is Evidence.CPU else f' or {Evidence.DEVICE}'}"
            )
        if one.skipped and cell.unsupported:
            raise UsageError(f"run {one_line(run)}: {one_line(cell.id)} is planned as skipped, and a rule excludes it")
        found.append(replace(one, cell=cell))
    return tuple(found)


def _of_matrix(run: str, cell: Cell, chart: Matrix) -> Cell:
    """The cell that the matrix has with these axes."""
    axes = {**NEUTRAL, **cell.axes}  # a run from before an axis was thought of has what that says by itself
    for axis, values in chart.axes.items():
        if axes.get(axis) not in values or type(axes[axis]) is bool:
            raise UsageError(
                f"run {one_line(run)} was planned with another matrix: {one_line(cell.id)} has {axis} "
                f"{one_line(str(axes.get(axis)))}, which is no value there"
            )
    return next(expand.cells(chart, {axis: (axes[axis],) for axis in chart.axes}))


def _difference(cell: Cell, planned: Cell) -> str:
    if planned.unsupported and not cell.unsupported:
        return f"a rule there that excludes it ({one_line(planned.unsupported)})"
    if planned.unsupported != cell.unsupported:
        return f"not the rule there that excludes it here ({one_line(cell.unsupported)})"
    if cell.load != planned.load:
        return f"the load {one_line(str(planned.load))} there, and {cell.load} here"
    if unknown := planned.axes.keys() - cell.axes.keys():
        return f"the axis {one_line(min(unknown))} there"
    if cell.id != planned.id or {**cell.labels, **planned.labels} != cell.labels:
        return f"another id or other labels there: {one_line(planned.id)} {one_line(str(dict(planned.labels)))}"
    return ""
