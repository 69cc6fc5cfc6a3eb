"""What changed between two sets of results: pure, cell by cell, by what a cell is and not by what was expected of it.

Cells are matched by all axes but the one that differs by design; what is matched is compared by its trouble and case by
case, known issues left aside, so that an entry that was added in between hides nothing. A case that passed and has no
verdict now got worse, unless the machine or the end of the run is the reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from runner import compare_cases
from runner.compare_cases import Both
from runner.errors import UsageError
from runner.model import AxisValue, CellResult, Evidence, Fault, State, Verdict
from runner.troubles import THE_CELL, Harm, harm, judged, says, troubles

__all__ = ["Change", "Comparison", "Harm", "Kind", "compare", "details", "judged", "troubles"]

Matched = frozenset[tuple[str, AxisValue]]
"""The axes by which two cells are the same one."""
RELEASES = "vllm"
"""Of the values of this axis the same cases judge a cell; those of another axis may have cases of their own."""


class Kind(StrEnum):
    """What became of a cell, the one that matters most first."""

    REGRESSED = "regressed"
    """It has trouble now and had none; or a case of it passed and is refused now."""
    CHANGED = "changed"
    """It has trouble on both sides, but not the same or not in the same cases; or its trouble is gone, but some of it
    was refused or not judged."""
    ONLY_EMULATED = "only_emulated"
    """The two sides have different evidence: no difference between them is a claim about either."""
    GONE = "gone"
    """It was judged before, and is not now or not in every case."""
    NEW = "new"
    """It is judged now, or in more cases, and was not before."""
    FIXED = "fixed"
    """It had trouble, or was refused, and now every case was judged and passes."""
    STILL = "still"
    """It has the same trouble on both sides, or lacks the same verdicts."""
    SAME = "same"
    """It passes on both sides, or is refused on both."""
    UNJUDGED = "unjudged"
    """Excluded, skipped, or without a result on both sides: nothing is said of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One cell on both sides; a side is None where no such cell was planned."""

    kind: Kind
    axes: Mapping[str, AxisValue]
    """By which the two were matched."""
    before: CellResult | None
    after: CellResult | None
    cases: tuple[Both, ...]
    """Those that do not simply pass on both sides."""

    @property
    def harm(self) -> tuple[Harm, Harm]:
        """The worst on each side."""
        return harm(self.before), harm(self.after)

    @property
    def worse(self) -> bool:
        """Whether something that passed does not any more, or trouble is worse; of differing evidence too, to be on the
        safe side. What the machine kept from being judged is no reason."""
        if self.kind is Kind.REGRESSED or any(case.worse for case in self.cases):
            return True
        return self.kind in {Kind.CHANGED, Kind.ONLY_EMULATED} and _worse(self.before, self.after)

    @property
    def lost(self) -> bool:
        """Whether something was judged before, and the machine, the harness or the selection kept it from being judged
        now."""
        return any(case.lost for case in self.cases)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Of the sides that were judged, each once, before first."""
        sides = (side.evidence for side in (self.before, self.after) if side is not None and judged(side))
        return tuple(dict.fromkeys(sides))

    @property
    def on_device(self) -> bool:
        """Whether every side that was judged ran on that GPU: only then it says something about a device."""
        return self.evidence == (Evidence.DEVICE,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All that was matched, in the order of the results; cells judged on neither side are in `unjudged` alone."""

    changes: tuple[Change, ...]
    unjudged: tuple[Change, ...]
    along: str
    """The axis that differs by design; empty where cells were matched by all axes."""
    sides: tuple[str, str]
    """The values that this axis has on each side, for people."""

    def of(self, kind: Kind) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.kind is kind)

    @property
    def comparable(self) -> int:
        """How many cells were judged on both sides."""
        return sum(judged(change.before) and judged(change.after) for change in self.changes)

    @property
    def exit_code(self) -> int:
        """1 where something is worse, 5 where nothing was judged on both sides, 3 where something judged before was not
        judged again, else 0."""
        if any(change.worse for change in self.changes):
            return 1
        if not self.comparable:
            return 5
        return 3 if any(change.lost for change in self.changes) else 0


def compare(before: Sequence[CellResult], after: Sequence[CellResult], *, along: str = RELEASES) -> Comparison:
    """Match and compare; UsageError where it is not clear which cells belong together.

    Where each side has one value of `along`, and not the same, cells are matched by all other axes. Where the sides
    share values, by all axes: then the same cells were run twice.
    """
    values = [list(dict.fromkeys(row.axes.get(along, "") for row in side)) for side in (before, after)]
    across = len(values[0]) == 1 and len(values[1]) == 1 and values[0] != values[1]
    if not across and before and after and not set(values[0]) & set(values[1]):
        words = " and ".join(", ".join(map(str, side)) for side in values)
        raise UsageError(
            f"the two sides have {along} {words}, and none in common: say which two to compare, as "
            f"`runner compare {values[0][0]} {values[1][0]} --in RUN --in RUN`"
        )
    sides = [_by_axes(side, without=along if across else "") for side in (before, after)]
    pairs = [(sides[0].get(key), sides[1].get(key), row) for key, row in (sides[1] | sides[0]).items()]
    changes = []
    for old, new, row in pairs:
        cases = tuple(compare_cases.of(old, new, same_by_design=not across or along == RELEASES))
        axes = {axis: value for axis, value in row.axes.items() if not (across and axis == along)}
        changes.append(Change(kind=_kind(old, new, cases), axes=axes, before=old, after=new, cases=cases))
    return Comparison(
        changes=tuple(change for change in changes if change.kind is not Kind.UNJUDGED),
        unjudged=tuple(change for change in changes if change.kind is Kind.UNJUDGED),
        along=along if across else "",
        sides=(", ".join(map(str, values[0])), ", ".join(map(str, values[1]))),
    )


def _by_axes(rows: Sequence[CellResult], *, without: str) -> dict[Matched, CellResult]:
    return {frozenset(item for item in row.axes.items() if item[0] != without): row for row in rows}


def _kind(before: CellResult | None, after: CellResult | None, cases: Sequence[Both]) -> Kind:
    if before is None or not judged(before):
        return Kind.NEW if judged(after) else Kind.UNJUDGED
    if after is None or not judged(after):
        return Kind.GONE
    if before.evidence is not after.evidence:
        return Kind.ONLY_EMULATED
    if any(case.refused for case in cases):
        return Kind.REGRESSED
    old, new = troubles(before), troubles(after)
    if old and new:
        return Kind.STILL if old == new and all(case.alike for case in cases) else Kind.CHANGED
    if any(_breaks(case, after) and not _was_unjudged(case, before) for case in cases):
        return Kind.REGRESSED
    if old or any(case.before is State.REFUSED and case.after is State.PASS for case in cases):
        return Kind.FIXED if all(map(_passes, cases)) else Kind.CHANGED
    if any(case.gone for case in cases):
        return Kind.GONE
    if any(says(case.after) and not says(case.before) for case in cases):
        return Kind.NEW
    return Kind.STILL if any(case.before.bad and case.after.bad for case in cases) else Kind.SAME


def _breaks(case: Both, after: CellResult) -> bool:
    return case.after.fault is Fault.PRODUCT or (case.after is State.REFUSED and after.verdict is Verdict.UNEXPECTED)


def _was_unjudged(case: Both, before: CellResult) -> bool:
    """Whether a case was there before and gave no verdict, so that its trouble now is not known to be worse."""
    there = case.name == THE_CELL or any(one.name == case.name for one in before.cases)
    return there and not says(case.before)


def _passes(case: Both) -> bool:
    """Whether nothing is left of a case's trouble: it passes, or nobody asks for it on either side."""
    return case.after is State.PASS or case.before is case.after is State.SKIPPED


def _worse(before: CellResult | None, after: CellResult | None) -> bool:
    """By the most harmful trouble; where that is the same, by trouble that is there now and was not before."""
    if before is None or after is None:
        return False
    if harm(before) is not harm(after):
        return harm(after) > harm(before)
    return not set(troubles(after)) <= set(troubles(before))


def details(change: Change) -> Iterator[str]:
    """What is on each side, in words: `pass`, `refused`, each trouble, and each case without a verdict."""
    for side, now in ((change.before, False), (change.after, True)):
        if side is None:
            yield "not planned"
        else:
            yield "; ".join([*map(str, troubles(side)), *_unsaid(change, side, now=now)]) or side.state.value


def _unsaid(change: Change, side: CellResult, *, now: bool) -> Iterator[str]:
    """The cases of one side that are refused or give no verdict, unless all of them are."""
    there = {case.name for case in side.cases}
    found: dict[str, list[str]] = {}
    for case in change.cases:
        state, other = (case.after, case.before) if now else (case.before, case.after)
        if case.name in there:
            if state is not State.PASS and state.fault is not Fault.PRODUCT and (says(other) or state.bad):
                found.setdefault(state.value, []).append(case.name)
        elif there and now and case.gone and case.name != THE_CELL and state is not side.state:
            found.setdefault("no result", []).append(case.name)
    for word, names in found.items():
        if len(names) < len(there) or word == "no result":
            yield f"{word} in {', '.join(names)}"
