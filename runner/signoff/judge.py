"""The decision: which required cells were shown, which not and why, and who answers for those. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum

from runner.model import AxisValue, Cell, CellResult, Evidence, State
from runner.reports.summary import NOT_OBTAINED
from runner.results import made_of
from runner.signoff import gaps
from runner.signoff.inputs import Run
from runner.signoff.policy import Approver, Policy, Requirement, Waiver
from runner.signoff.policy_document import SAME

CLOCKS_DIFFER = timedelta(minutes=10)
"""How much later than the sign-off a result may say that it ended: machines' clocks differ."""


class Decision(StrEnum):
    """What a release engineer may say."""

    GO = "GO"
    WITH_WAIVERS = "GO WITH WAIVERS"
    NO_GO = "NO-GO"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A result of a cell, the run it is of, and why it does not count, empty where it does."""

    run: str
    row: CellResult
    gap: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """What is missing of a cell: a word of `gaps`, more of it, and the waiver that counts for it."""

    name: str
    detail: str
    issue: str = ""
    """Of a known issue, which only a waiver that names the same covers: another one would hide behind it."""
    waiver: Waiver | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A required cell: what there is of it, and what is missing; it is shown where nothing is."""

    requirement: Requirement
    cell: Cell
    attempts: tuple[Attempt, ...]
    gaps: tuple[Gap, ...]

    @property
    def counting(self) -> tuple[Attempt, ...]:
        return tuple(one for one in self.attempts if not one.gap)

    @property
    def open(self) -> tuple[Gap, ...]:
        """The gaps that nobody answers for."""
        return tuple(gap for gap in self.gaps if gap.waiver is None)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Of what counts."""
        found = {one.row.evidence for one in self.counting}
        return tuple(evidence for evidence in Evidence if evidence in found)


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What a waiver is good for: how many gaps it covers, and why it does not count for others."""

    waiver: Waiver
    covers: int
    refused: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """The decision, with all it rests on."""

    decision: Decision
    cells: tuple[Judged, ...]
    """Of each requirement, in the order of the policy; a cell that two requirements ask for is there twice."""
    waivers: tuple[Standing, ...]


def judge(policy: Policy, runs: Sequence[Run], at: datetime, since: Sequence[CellResult] = ()) -> Judgement:
    """Judge every required cell by all its results in these runs, as of a time; `since` has those of the run before."""
    judged = []
    passed = {_apart_from_release(row.axes) for row in since if row.state is State.PASS}
    for requirement in policy.requirements:
        found = [
            (cell, [(run.id, run.rows[cell.id]) for run in runs if cell.id in run.rows]) for cell in requirement.cells
        ]
        wanted = _wanted(policy.environment, (row for _, rows in found for _, row in rows))
        for cell, rows in found:
            attempts = tuple(_attempt(requirement, run, row, wanted, at) for run, row in rows)
            passed_before = _apart_from_release(cell.axes) in passed
            found_gaps = _gaps(requirement, attempts, at, passed_before=passed_before)
            named = tuple(_waived(gap, cell, policy, at.date()) for gap in found_gaps)
            judged.append(Judged(requirement=requirement, cell=cell, attempts=attempts, gaps=named))
    every = [gap for one in judged for gap in one.gaps]
    decision = (
        Decision.NO_GO if any(gap.waiver is None for gap in every) else Decision.WITH_WAIVERS if every else Decision.GO
    )
    standings = tuple(_standing(waiver, judged, policy, at.date()) for waiver in policy.waivers)
    return Judgement(decision=decision, cells=tuple(judged), waivers=standings)


def _attempt(
    asked: Requirement, run: str, row: CellResult, wanted: Mapping[tuple[Evidence, str], Sequence[str]], at: datetime
) -> Attempt:
    """Whether a result counts: it was obtained, as asked for, lately, and in the environment asked for."""
    if row.state in NOT_OBTAINED:
        return Attempt(run=run, row=row, gap=gaps.ABSENT, why=f"{row.state}: {row.reason}" if row.reason else row.state)
    if row.evidence not in asked.evidence:
        why = f"only {row.evidence}; asked for is {' or '.join(asked.evidence)}"
        return Attempt(run=run, row=row, gap=gaps.EVIDENCE, why=why)
    if why := _age(row.ended_at, asked.max_age_days, at):
        return Attempt(run=run, row=row, gap=gaps.STALE, why=why)
    for key in (key for evidence, key in wanted if evidence is row.evidence):  # in the order of their names
        value, good = _said(row, key), wanted[row.evidence, key]
        if not value or value not in good:
            why = f"{key} is {value or 'not said'}; asked for is {' or '.join(good) or 'one'}"
            return Attempt(run=run, row=row, gap=gaps.ENVIRONMENT, why=why)
    return Attempt(run=run, row=row)


def _wanted(
    environment: Mapping[str, Sequence[str]], rows: Iterable[CellResult]
) -> dict[tuple[Evidence, str], Sequence[str]]:
    """By kind of evidence and name, what a result may say; `same` is what the newest result says that says anything."""
    newest: dict[tuple[Evidence, str], tuple[str, str]] = {}
    for row in rows:
        for key in environment:
            if row.state not in NOT_OBTAINED and (value := _said(row, key)):
                newest[row.evidence, key] = max(newest.get((row.evidence, key), ("", "")), (row.ended_at, value))
    return {
        (evidence, key): [newest[evidence, key][1]] if SAME in good and (evidence, key) in newest else list(good)
        for evidence in Evidence
        for key, good in sorted(environment.items())
    }


def _said(row: CellResult, key: str) -> str:
    """What a result says of its environment; an image for a GPU is made by hand, and its id stands for a recipe."""
    return made_of(row.environment) if key == "recipe_digest" else row.environment.get(key, "")


def _age(ended_at: str, max_age_days: int, at: datetime) -> str:
    """Why a result is too old, or empty."""
    try:
        ended = datetime.fromisoformat(ended_at)
    except ValueError:
        return "it does not say when it ended"
    ended = ended if ended.tzinfo else ended.replace(tzinfo=UTC)
    if ended > at + CLOCKS_DIFFER:
        return f"it ended on {ended:%Y-%m-%d}, after the sign-off"
    return f"more than {max_age_days} days old" if at - ended > timedelta(days=max_age_days) else ""


def _apart_from_release(axes: Mapping[str, AxisValue]) -> frozenset[tuple[str, AxisValue]]:
    return frozenset((axis, value) for axis, value in axes.items() if axis != "vllm")


def _gaps(asked: Requirement, attempts: Sequence[Attempt], at: datetime, *, passed_before: bool) -> Iterator[Gap]:
    """What is missing: too few results that count, each verdict that is not accepted, and a pass that was lost.

    A bad verdict is a gap whatever its evidence, and beside a good one too: nothing hides behind a luckier result. What
    is too old, or of another environment, says nothing either way.
    """
    speaking = [
        one.row
        for one in attempts
        if not one.gap or (one.gap == gaps.EVIDENCE and not _age(one.row.ended_at, asked.max_age_days, at))
    ]
    if passed_before and (lost := [row for row in speaking if row.state is State.REFUSED]):
        yield Gap(name=gaps.REGRESSED, detail=_trouble(lost))
    unwanted = [row for row in speaking if not asked.accepts(row)]
    for verdict in dict.fromkeys(row.verdict for row in unwanted):
        rows = [row for row in unwanted if row.verdict is verdict]
        for issue in dict.fromkeys(link for row in rows for link in row.known.split() or [""]):
            yield Gap(name=verdict.value, detail=_trouble(rows), issue=issue)
    counting = {_once(one.row) for one in attempts if not one.gap}
    if len(counting) >= asked.green_runs:
        return
    if counting:
        yield Gap(name=gaps.RUNS, detail=f"{len(counting)} of {asked.green_runs} runs")
        return
    order = list(gaps.MEANING)
    best = max(attempts, key=lambda one: order.index(one.gap), default=None)
    yield Gap(name=best.gap, detail=best.why) if best else Gap(name=gaps.ABSENT, detail="not in the plan of any run")


def _once(row: CellResult) -> tuple[str, str, float]:
    """What tells two runs of a cell apart, where one result has come into two run directories."""
    return row.ended_at, row.environment.get("machine", ""), row.duration_s


def _trouble(rows: Sequence[CellResult]) -> str:
    found = sorted({f"{one.buffer} {one.how}" for row in rows for one in row.overflow})
    evidence = [kind for kind in Evidence if any(row.evidence is kind for row in rows)]
    expired = dict.fromkeys(f"; known as {row.expired}, which has expired" for row in rows if row.expired)
    return f"{', '.join(found) or rows[0].reason or rows[0].state} ({', '.join(evidence)}){''.join(expired)}"


def _waived(gap: Gap, cell: Cell, policy: Policy, today: date) -> Gap:
    """The gap with the first waiver that counts for it."""
    for waiver in policy.waivers:
        if _speaks(waiver, gap, cell) and not _refusal(waiver, gap, cell, policy, today):
            return replace(gap, waiver=waiver)
    return gap


def _speaks(waiver: Waiver, gap: Gap, cell: Cell) -> bool:
    return gap.name in waiver.what and gap.issue in {"", waiver.issue} and waiver.area.has(cell)


def _refusal(waiver: Waiver, gap: Gap, cell: Cell, policy: Policy, today: date) -> str:
    """Why a waiver does not count for a gap that it speaks of; empty where it does."""
    if today > waiver.until:
        return f"it expired on {waiver.until}"
    listed = [one for one in policy.approvers if one.who == waiver.who]
    return min((_not_by(one, waiver, gap, cell, today) for one in listed), default="the policy lists no such approver")


def _not_by(approver: Approver, waiver: Waiver, gap: Gap, cell: Cell, today: date) -> str:
    latest = today + timedelta(days=min(approver.days, (date.max - today).days))
    if gap.name not in approver.what:
        return f"{approver.who} may not waive {gap.name}"
    if not approver.area.has(cell):
        return f"{approver.who} may waive only in {approver.area}"
    return f"{approver.who} may waive for {approver.days} days, until {latest}" if waiver.until > latest else ""


def _standing(waiver: Waiver, judged: Sequence[Judged], policy: Policy, today: date) -> Standing:
    spoken = [(one.cell, gap) for one in judged for gap in one.gaps if _speaks(waiver, gap, one.cell)]
    refused = dict.fromkeys(_refusal(waiver, gap, cell, policy, today) for cell, gap in spoken)
    why = [reason for reason in refused if reason] or ([] if spoken else ["these cells have no such gap: take it out"])
    return Standing(waiver=waiver, covers=sum(gap.waiver is waiver for _, gap in spoken), refused=tuple(why))
