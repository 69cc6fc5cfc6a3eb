"""Which of several results of a cell counts, and which cannot both be right. Pure.

All outcomes of a cell are kept, the one that counts last; so merging is the union of sets: in whatever order and
however often, the same comes out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from runner import outcome
from runner.history.records import Revision, revision
from runner.matrix import Matrix
from runner.model import CellOutcome, Evidence, State
from runner.plan import Plan, Planned
from runner.reports.text import count, one_line

BEST = (Evidence.DEVICE, Evidence.INTERPRETED, Evidence.EMULATED, Evidence.CPU)
"""Evidence, best first: kernels on a device, kernels, vLLM's Python, another backend's."""
RANK = {kind: position for position, kind in enumerate(BEST)}
YIELDING = (State.MISSING, State.INFRA, State.SKIPPED, State.NOT_RUN)
"""States that say nothing of the product, and give way to any result; among themselves the first one stays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clash:
    """Two outcomes of one cell that cannot both be right."""

    cell: str
    evidence: Evidence
    says: tuple[str, ...]
    """What each says, and where it was obtained."""

    def __str__(self) -> str:
        return f"{self.cell} ({self.evidence.value}): {' against '.join(self.says)}"


def gathered(parts: Iterable[Iterable[CellOutcome]]) -> dict[str, set[str]]:
    """By cell, each outcome once, as the JSON by which outcomes are compared."""
    found: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        for one in part:
            found[one.cell.id].add(dump(one))
    return found


def in_order(found: Iterable[str]) -> tuple[CellOutcome, ...]:
    """Outcomes of one cell, the one that counts last."""
    return tuple(sorted((load(text) for text in found), key=weight))


def weight(one: CellOutcome) -> tuple[int, int, str, str]:
    """The heaviest outcome of a cell counts: a result before none, better evidence before other, then the newest."""
    state = outcome.of(one)[0]
    yields = YIELDING.index(state) + 1 if state in YIELDING else 0
    return -yields, -RANK[one.evidence], one.ended_at, dump(one)


def clashes(outcomes: Iterable[Sequence[CellOutcome]], *, seed: int) -> list[Clash]:
    """Cells with results of the same evidence and revision that found different things: another state, or other
    overflows."""
    found = []
    for of_cell in outcomes:
        alike: dict[tuple[Evidence, Revision], dict[str, CellOutcome]] = defaultdict(dict)
        for one in of_cell:
            if outcome.of(one)[0] not in YIELDING:
                key = one.evidence, revision(one.environment, seed=seed)
                alike[key].setdefault(_found(one), one)
        found += [
            Clash(
                cell=of_cell[0].cell.id, evidence=evidence, says=tuple(_where(what, one) for what, one in said.items())
            )
            for (evidence, _), said in alike.items()
            if len(said) > 1
        ]
    return found


def planned(plans: Iterable[Iterable[Planned]], outcomes: Mapping[str, Sequence[CellOutcome]], chart: Matrix) -> Plan:
    """All cells of all plans in the order of the matrix, each with the evidence of the outcome that counts.

    A cell without one is as the plan has it that has the best evidence for it. A plan that skips a cell, for want of a
    device or because it is known to crash, gives way to one that does not.
    """
    best: dict[str, Planned] = {}
    for plan in plans:
        for one in plan:
            best[one.cell.id] = min(one, best.get(one.cell.id, one), key=_preference)
    for cell, found in outcomes.items():
        if cell in best and found:
            best[cell] = replace(best[cell], evidence=found[-1].evidence, skipped="")
    places = {axis: {value: place for place, value in enumerate(values)} for axis, values in chart.axes.items()}

    def place(one: Planned) -> tuple[list[int], str]:
        axes = one.cell.axes
        return [of[axes[axis]] if axis in axes and axes[axis] in of else -1 for axis, of in places.items()], one.cell.id

    return Plan(tuple(sorted(best.values(), key=place)))


def _preference(one: Planned) -> tuple[bool, int, str]:
    return bool(one.skipped), RANK[one.evidence], one.skipped


def notes(outcomes: Mapping[str, Sequence[CellOutcome]]) -> list[str]:
    """What a person should know: what does not count beside what does."""
    over: Counter[str] = Counter()
    for found in outcomes.values():
        real = [one for one in found if outcome.of(one)[0] not in YIELDING]
        if real and any(outcome.of(one)[0] is State.MISSING for one in found):
            over["a result counts, and another run of the cell gave no verdict (missing): see its log"] += 1
        for one in real[:-1]:
            kept = real[-1]
            if one.evidence is not kept.evidence:
                differs = "" if _found(one) == _found(kept) else ", which found something else"
                over[f"{kept.evidence.value} counts, not {one.evidence.value}{differs}"] += 1
            elif revision(one.environment) != revision(kept.environment):
                over["the newer counts, of another revision (vllm, recipe or cases)"] += 1
    return [f"{count(number, 'cell')}: {what}" for what, number in sorted(over.items())]


def _found(one: CellOutcome) -> str:
    """What an outcome says of the product."""
    overflows = sorted({f"{o.buffer} {o.how.value}" for case in one.cases for o in case.overflow})
    return ": ".join([outcome.of(one)[0].value, ", ".join(overflows)] if overflows else [outcome.of(one)[0].value])


def _where(what: str, one: CellOutcome) -> str:
    machine = one.environment.get("machine", "") or "a machine without a name"
    return one_line(f"{what} on {machine} at {one.ended_at or 'an unknown time'}")


_OUTCOME: TypeAdapter[CellOutcome] = TypeAdapter(CellOutcome)


def dump(one: CellOutcome) -> str:
    return _OUTCOME.dump_json(one).decode()


def load(text: str) -> CellOutcome:
    return _OUTCOME.validate_json(text)
