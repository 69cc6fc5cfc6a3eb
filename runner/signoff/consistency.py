"""Whether the parts of a run belong together, and to the matrix of the sign-off: UsageError where they do not."""

from collections.abc import Iterable, Mapping, Sequence

from runner.errors import UsageError
from runner.model import Cell, CellResult, Evidence
from runner.plan import Planned
from runner.reports.summary import NOT_OBTAINED
from runner.reports.text import one_line


def check_rows(run: str, planned: Sequence[Planned], rows: Sequence[CellResult]) -> None:
    """A run has one result for each cell of its plan, in that order, with its axes, and of the evidence planned."""
    _check_ids(run, [one.cell.id for one in planned], [row.id for row in rows])
    for one, row in zip(planned, rows, strict=True):
        what = f"run {one_line(run)}: {one_line(row.id)}"
        # A run from before an axis was thought of is read as if it had it.
        if any(row.axes.get(axis) != value for axis, value in one.cell.axes.items()):
            raise UsageError(f"{what} is planned with other axes than its result has")
        if row.evidence is not one.evidence:
            raise UsageError(f"{what} was planned as {one.evidence}, and its result says {row.evidence}")
        if row.evidence is Evidence.DEVICE and row.state not in NOT_OBTAINED and not row.environment.get("gpu"):
            raise UsageError(f"{what} says {Evidence.DEVICE} and names no GPU")


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


def check_distinct(runs: Sequence[tuple[str, str]]) -> None:
    """The same results twice would be two green runs out of one; a run is its id and the digest of its results."""
    for number, (id_, digest) in enumerate(runs):
        for other, other_digest in runs[:number]:
            if id_ == other or digest == other_digest:
                raise UsageError(f"run {one_line(id_)} is given twice, also as {one_line(other)}: a run counts once")


def check_same_cells(run: str, planned: Iterable[Planned], asked: Mapping[str, Cell]) -> None:
    """A cell means the same in the plan of a run as in the matrix of the sign-off."""
    for one in planned:
        cell = asked.get(one.cell.id)
        if cell and (other := _difference(cell, one.cell)):
            raise UsageError(f"run {one_line(run)} was planned with another matrix: {one_line(cell.id)} has {other}")


def _difference(cell: Cell, planned: Cell) -> str:
    if planned.unsupported:
        return f"a rule there that excludes it ({one_line(planned.unsupported)})"
    if cell.load != planned.load:
        return f"the load {one_line(str(planned.load))} there, and {cell.load} here"
    other = {axis: value for axis, value in planned.axes.items() if cell.axes.get(axis) != value}
    return f"other axes there: {one_line(str(other))}" if other else ""
