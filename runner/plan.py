"""What a run would do: each cell with the evidence it will give, grouped into orders for workers."""

import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from runner.axes import ID, lacking
from runner.errors import UsageError
from runner.model import AxisValue, Cell, Evidence, Load, Order
from runner.nearest import hint, quoted

WITHOUT_A_DEVICE: dict[tuple[AxisValue | None, AxisValue], Evidence] = {
    ("forward", "triton_attn"): Evidence.INTERPRETED,
    ("engine", "triton_attn"): Evidence.INTERPRETED,
}
"""By case and backend, where kernels run that need no GPU: Triton's in its interpreter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A cell and how its result will be obtained."""

    cell: Cell
    evidence: Evidence
    skipped: str = ""
    """Why it was asked for and is not run; empty where it is."""

    @property
    def runs(self) -> bool:
        return not self.cell.unsupported and not self.skipped


@dataclass(frozen=True, slots=True)
class Plan:
    """All selected cells, in the order of the matrix; totals add up against this."""

    planned: tuple[Planned, ...]
    seed: int = 0
    """Of the random batches, the same for all orders."""

    @property
    def orders(self) -> tuple[Order, ...]:
        """The cells to run, one order per environment, evidence, case and device's arch, as their first cells come."""
        return self.without(())

    def without(self, done: Container[str]) -> tuple[Order, ...]:
        """The same, less the cells with these ids."""
        groups: dict[tuple[str, Evidence, str, str], list[Cell]] = {}
        for one in self.planned:
            if one.runs and one.cell.id not in done:
                axes = one.cell.axes
                device = str(axes["arch"]) if one.evidence is Evidence.DEVICE else ""
                key = (str(axes["vllm"]), one.evidence, str(axes.get("case")), device)
                groups.setdefault(key, []).append(one.cell)
        return tuple(
            Order(environment=environment, evidence=evidence, cells=tuple(group), seed=self.seed)
            for (environment, evidence, *_), group in groups.items()
        )

    @property
    def unsupported(self) -> tuple[Planned, ...]:
        """The cells that a rule excludes: results already, without a run."""
        return tuple(one for one in self.planned if one.cell.unsupported)

    @property
    def skipped(self) -> tuple[Planned, ...]:
        """The cells that were asked for and cannot be run here, or are better not run."""
        return tuple(one for one in self.planned if one.skipped)

    def skipping(self, why: Callable[[Cell], str]) -> "Plan":
        """The same, less the cells for which there is a reason not to run them."""
        planned = (replace(one, skipped=why(one.cell)) if one.runs else one for one in self.planned)
        return replace(self, planned=tuple(planned))


def make_plan(cells: Iterable[Cell], *, device_archs: frozenset[str], seed: int = 0, device_only: str = "") -> Plan:
    """Decide the evidence of each cell: a device only serves cells of its own arch.

    `device_only`, where no other evidence is wanted, says why there are no more devices: cells without one are skipped.
    """
    planned = (Planned(cell=cell, evidence=_evidence(cell.axes, device_archs)) for cell in cells)
    return Plan(tuple(_on_a_device(one, device_only) if device_only else one for one in planned), seed)


def _on_a_device(one: Planned, why: str) -> Planned:
    if one.evidence is Evidence.DEVICE or one.cell.unsupported:
        return one
    return replace(one, evidence=Evidence.DEVICE, skipped=f"there is no {one.cell.axes['arch']} device here: {why}")


def _evidence(axes: Mapping[str, AxisValue], devices: frozenset[str]) -> Evidence:
    """Of a cell: without a device it depends on what computes. A builder is vLLM's own Python on a presented arch."""
    if axes["arch"] == "cpu":
        return Evidence.CPU
    if axes["arch"] in devices:
        return Evidence.DEVICE
    return WITHOUT_A_DEVICE.get((axes.get("case"), axes["backend"]), Evidence.EMULATED)


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """One line of plan.json and of `runner list --json`."""

    id: str
    axes: Mapping[str, AxisValue]
    labels: Mapping[str, str]
    load: Load
    unsupported: str
    evidence: Evidence
    skipped: str = ""


_ROWS = TypeAdapter(list[_Row])


def to_rows(plan: Plan) -> list[dict[str, Any]]:
    """The plan as plain data: a row per cell, as `pytest cases --cells FILE` reads it."""
    return [_row(one) for one in plan.planned]


def _row(one: Planned) -> dict[str, Any]:
    row = asdict(one.cell) | {"evidence": one.evidence.value}
    return row | {"skipped": one.skipped} if one.skipped else row


def to_json(plan: Plan) -> str:
    """The text of plan.json: an array, a line per cell."""
    return "[\n" + ",\n".join(json.dumps(row) for row in to_rows(plan)) + "\n]\n"


def read(path: Path) -> Plan:
    """The plan in a file; UsageError where it cannot be read or is something else."""
    try:
        return from_json(path.read_bytes(), name=str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}): name a whole run directory") from None


def from_json(text: str | bytes, *, name: str = "plan.json") -> Plan:
    """Read plan.json back; UsageError where it is something else."""
    try:
        rows = _ROWS.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise UsageError(f"{name} is not a plan: {where}: {first['msg']}") from None
    if wrong := _wrong(rows):
        raise UsageError(f"{name} is not a plan: {wrong}: the file was changed; take it from a copy, or run anew")
    return Plan(
        tuple(
            Planned(
                cell=Cell(id=r.id, axes=r.axes, labels=r.labels, load=r.load, unsupported=r.unsupported),
                evidence=r.evidence,
                skipped=r.skipped,
            )
            for r in rows
        )
    )


def _wrong(rows: Iterable[_Row]) -> str:
    """What no plan of ours would say, where each field for itself is what it should be."""
    seen = set()
    for number, row in enumerate(rows):
        if not ID.fullmatch(row.id):
            return f"{number}.id: {quoted(row.id)} is no id of a cell"
        if row.id in seen:
            return f"{number}.id: {row.id} is there twice"
        if axis := lacking(row.axes):
            return f"{number}.axes: {row.id} has no axis {axis}{hint(axis, row.axes)}"
        seen.add(row.id)
    return ""
