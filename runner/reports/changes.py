"""Changes that look alike together, and what a reader has to know of a comparison: what all its forms say."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runner.compare import Change, Comparison, Harm, Kind, details
from runner.compare_cases import other_cases
from runner.model import CellResult, Evidence, State, Verdict
from runner.outcome import VERDICT_ORDER
from runner.reports.fields import Field
from runner.reports.patterns import Domain, compact
from runner.reports.summary import EVIDENCE_MEANING
from runner.reports.text import count, one_line

PATTERNS = 6
"""Patterns shown of one group."""
NAMES = {Kind.ONLY_EMULATED: "only emulated on one side"}
QUIET = "silent now: no exception shows it any more, which is worse than a plain failure"


@dataclass(frozen=True, kw_only=True, slots=True)
class Alike:
    """Changes of one kind with the same trouble on each side."""

    kind: Kind
    worse: bool
    lost: bool
    before: str
    after: str
    evidence: str
    changes: tuple[Change, ...]


def alike(found: Comparison) -> tuple[Alike, ...]:
    """What got worse first, the most harmful of it first; what is the same is left out."""
    together: dict[tuple[Any, ...], list[Change]] = defaultdict(list)
    for change in found.changes:
        if change.kind is not Kind.SAME and not (change.kind is Kind.ONLY_EMULATED and _agrees(change)):
            key = (change.kind, change.worse, change.lost, *details(change), _evidence(change))
            together[key].append(change)
    made = [
        Alike(kind=k, worse=w, lost=lo, before=b, after=a, evidence=e, changes=tuple(changes))
        for (k, w, lo, b, a, e), changes in together.items()
    ]
    return tuple(sorted(made, key=_rank))


def _agrees(change: Change) -> bool:
    """Whether two sides with different evidence say the same."""
    before, after = details(change)
    return before == after


def _evidence(change: Change) -> str:
    return " → ".join(change.evidence)


def _rank(group: Alike) -> tuple[bool, int, bool, int, int, str]:
    """What changed stands before what only one side judged, lost or not."""
    harm = max(group.changes[0].harm)
    return not group.worse, list(Kind).index(group.kind), not group.lost, -harm, -len(group.changes), group.before


def summary_lines(found: Comparison) -> list[str]:
    """What was compared, how it went, and what no claim is made of."""
    counts = Counter(change.kind for change in found.changes)
    differ = [change for change in found.changes if change.kind is Kind.ONLY_EMULATED]
    worse = sum(change.worse for change in found.changes)
    lost = sum(change.lost for change in found.changes)
    kinds = " + ".join(f"{counts[kind]:,} {NAMES.get(kind, kind)}" for kind in Kind if counts[kind]) or "0"
    lines = [
        f"{count(len(found.changes), 'cell')} judged = {kinds}; {len(found.unjudged):,} judged on neither side; "
        "known issues left aside"
    ]
    lines += [f"verdicts {side}: {_totals(found, side)}" for side in ("before", "after")]
    if worse:
        lines.append(f"{count(worse, 'cell')} got worse")
        if silent := sum(any(case.worse and case.gone for case in change.cases) for change in found.changes):
            lines.append(f"{count(silent, 'cell')} of these passed a case that gives no verdict now")
    elif found.comparable:
        lines.append(f"of {count(found.comparable, 'cell')} judged on both sides, none got worse")
    if broken := sum(change.kind is Kind.NEW and change.harm[1] > Harm.NONE for change in found.changes):
        lines.append(f"{count(broken, 'new cell')} with trouble: not known to be worse, for nothing was known before")
    if lost:
        lines.append(f"{count(lost, 'cell')} judged before could not be judged again: machine or harness trouble")
    if differ:
        agreed = sum(map(_agrees, differ))
        lines.append(
            f"{count(len(differ), 'cell')} with different evidence on the two sides, no claim about either: "
            f"{agreed:,} say the same, {len(differ) - agreed:,} do not"
        )
    if moved := [change for change in found.changes if other_cases(change.before, change.after)]:
        lines.append(
            f"{count(len(moved), 'cell')} judged by different cases on the two sides (cases_digest): a difference may "
            "be theirs"
        )
    off = Counter(one for change in found.changes for one in change.evidence if one is not Evidence.DEVICE)
    for one, n in off.items():
        lines.append(f"nothing was shown on a GPU: {count(n, 'cell')} {one} ({EVIDENCE_MEANING[one]})")
    return lines


def _totals(found: Comparison, side: str) -> str:
    """How many cells of one side have which verdict, worst first."""
    rows = [getattr(change, side) for change in (*found.changes, *found.unjudged)]
    counts = Counter(row.verdict for row in rows if row is not None)
    return " + ".join(f"{counts[one]:,} {one}" for one in sorted(counts, key=VERDICT_ORDER.__getitem__)) or "no cell"


def exit_line(found: Comparison) -> str:
    meaning = {
        0: "nothing got worse",
        1: "something got worse",
        3: "nothing got worse, but cells were lost to machine or harness trouble",
        5: "no cell was judged on both sides: nothing is comparable",
    }
    return f"exit {found.exit_code}: {meaning[found.exit_code]}"


def headline(group: Alike) -> str:
    name = NAMES.get(group.kind, group.kind.value)
    if group.worse and group.kind is not Kind.REGRESSED:
        name += ", worse"
    return " · ".join([name, count(len(group.changes), "cell"), group.evidence])


def fields(group: Alike, axes: Domain) -> Iterator[Field]:
    """Before and after, what was expected, where, and the command that shows one of them."""
    if group.before == group.after:
        yield Field("both", [one_line(group.before, 600)])
    else:
        yield Field("before", [one_line(group.before, 600)])
        yield Field("after", [one_line(group.after, 600)])
    before, after = group.changes[0].harm
    if group.worse and after >= Harm.MISLED > before:
        yield Field("worse", [QUIET])
    if verdicts := _verdicts(group):
        yield Field("verdict", verdicts)
    if shaky := sum(any(map(_came_and_went, sides(change))) for change in group.changes):
        yield Field(
            "flaky", [f"{count(shaky, 'cell')} seen both ways at one revision: run again before you believe it"]
        )
    if (now := group.changes[0].after) and (
        any(case.gone for case in group.changes[0].cases)
        or (now.state is State.REFUSED and group.kind is not Kind.STILL)
    ):
        yield Field("reason", [one_line(_why(group.changes[0]) or now.reason) or "none given"])
    yield Field("where", compact(group.changes, axes, limit=PATTERNS))
    repro = next((side.repro for side in reversed(sides(group.changes[0])) if side.repro), "")
    if repro:
        yield Field("repro", [one_line(repro, 1000)], copied=True)


def _why(change: Change) -> str:
    """What the first case says that gives no verdict any more."""
    gone = {case.name for case in change.cases if case.gone}
    cases = change.after.cases if change.after else ()
    return next((case.message for case in cases if case.name in gone and case.message), "")


def sides(change: Change) -> list[CellResult]:
    return [side for side in (change.before, change.after) if side is not None]


def _came_and_went(row: CellResult) -> bool:
    return row.verdict is Verdict.FLAKY or (row.state.bad and State.PASS in row.reruns)


def _verdicts(group: Alike) -> list[str]:
    """Where known issues made something else of a state, on either side."""
    pairs = Counter(
        tuple(side.verdict.value if side else "-" for side in (change.before, change.after))
        for change in group.changes
        if any(side.verdict.value != side.state.value for side in sides(change))
    )
    return [f"{before} → {after}: {count(n, 'cell')}" for (before, after), n in pairs.items()]


def domain(found: Comparison) -> Domain:
    """What a rule excludes on both sides does not exist."""
    every = [*found.changes, *found.unjudged]
    excluded = {id(one) for one in every if all(side.state is State.UNSUPPORTED for side in sides(one))}
    return Domain(every, [one for one in every if id(one) not in excluded])
