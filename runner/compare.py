"""What changed between two sets of results: pure, cell by cell, by what a cell is and not by what was expected of it.

Cells are matched by all axes but the one that differs by design; what is matched is compared by its state and by the
trouble in it, known issues left aside, so that an entry that was added in between hides nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from runner.errors import UsageError
from runner.model import AxisValue, CellResult, Evidence, Fault, How, State

Matched = frozenset[tuple[str, AxisValue]]
"""The axes by which two cells are the same one."""


class Kind(StrEnum):
    """What became of a cell, the one that matters most first."""

    REGRESSED = "regressed"
    """It passed, or was refused before work, and has trouble now; or it passed and is refused now."""
    CHANGED = "changed"
    """It has trouble on both sides, but not the same; or trouble became a refusal."""
    ONLY_EMULATED = "only_emulated"
    """The two sides have different evidence: no difference between them is a claim about either."""
    GONE = "gone"
    """It was judged before and is not now."""
    NEW = "new"
    """It is judged now and was not before."""
    FIXED = "fixed"
    """It had trouble, or was refused, and passes now."""
    STILL = "still"
    """It has the same trouble on both sides."""
    SAME = "same"
    """It passes on both sides, or is refused on both."""
    UNJUDGED = "unjudged"
    """Excluded, skipped, or without a result on both sides: nothing is said of it."""


class Harm(IntEnum):
    """How bad trouble is for whom it befalls: what nobody notices is worse than what stops the engine."""

    NONE = 0
    LATENT = 1
    """No batch that was tried reaches it."""
    RAISED = 2
    """An exception: loud, and nothing is wrong before it."""
    WRONG = 3
    """A case asserted wrong."""
    DEATH = 4
    """The process is gone: crash, timeout, oom."""
    MISLED = 5
    """Resized or short: a kernel is given storage that is not what it believes, and nothing says so."""
    SILENT = 6
    """A write landed outside of its buffer, and nothing says so."""


_HARM_OF_HOW = {
    How.LATENT: Harm.LATENT,
    How.RAISED: Harm.RAISED,
    How.RESIZED: Harm.MISLED,
    How.SHORT: Harm.MISLED,
    How.SILENT: Harm.SILENT,
}
_HARM_OF_STATE = {
    State.FAIL: Harm.WRONG,
    State.OVERFLOW: Harm.RAISED,  # without a word of how
    State.CRASH: Harm.DEATH,
    State.OOM: Harm.DEATH,
    State.TIMEOUT: Harm.DEATH,
}


@dataclass(frozen=True, order=True, slots=True)
class Trouble:
    """One bad thing in a cell: an overflow by its buffer and how it showed, else a state by the case that has it."""

    what: str
    where: str
    harm: Harm = field(compare=False)

    def __str__(self) -> str:
        return f"{self.what} in {self.where}" if self.where else self.what


def troubles(row: CellResult) -> tuple[Trouble, ...]:
    """What is wrong with the product in a cell, most harmful first; empty where nothing is."""
    if row.state.fault is not Fault.PRODUCT:
        return ()
    found = {Trouble(f"overflow {o.how}", o.buffer, _HARM_OF_HOW[o.how]) for o in row.overflow}
    found |= {
        Trouble(case.state.value, case.name, _HARM_OF_STATE[case.state])
        for case in row.cases
        if case.state.fault is Fault.PRODUCT and not case.overflow
    }
    if not found:
        found = {Trouble(row.state.value, "", _HARM_OF_STATE[row.state])}
    return tuple(sorted(found, key=lambda one: (-one.harm, one)))


def judged(row: CellResult | None) -> bool:
    """Whether vLLM itself had a say: it passed, broke, or refused."""
    return row is not None and (row.state in {State.PASS, State.REFUSED} or row.state.fault is Fault.PRODUCT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One cell on both sides; a side is None where no such cell was planned."""

    kind: Kind
    axes: Mapping[str, AxisValue]
    """By which the two were matched."""
    before: CellResult | None
    after: CellResult | None

    @property
    def harm(self) -> tuple[Harm, Harm]:
        """The worst on each side."""
        before, after = (_harm(side) for side in (self.before, self.after))
        return before, after

    @property
    def worse(self) -> bool:
        """Whether what was judged on both sides is worse now; of differing evidence too, to be on the safe side."""
        if not (judged(self.before) and judged(self.after)):
            return False
        return self.kind is Kind.REGRESSED or (
            self.kind in {Kind.CHANGED, Kind.ONLY_EMULATED} and _worse(self.before, self.after)
        )

    @property
    def lost(self) -> bool:
        """Whether it was judged before, and machine or harness trouble kept it from being judged now."""
        return self.kind is Kind.GONE and self.after is not None and self.after.state.bad

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
        """1 where something is worse, 3 where something judged before was lost to the machine or the harness, 5 where
        nothing was judged on both sides, else 0."""
        if not self.comparable:
            return 5
        if any(change.worse for change in self.changes):
            return 1
        return 3 if any(change.lost for change in self.changes) else 0


def compare(before: Sequence[CellResult], after: Sequence[CellResult], *, along: str = "vllm") -> Comparison:
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
    changes = [
        Change(
            kind=_kind(old, new),
            axes={axis: value for axis, value in row.axes.items() if not (across and axis == along)},
            before=old,
            after=new,
        )
        for old, new, row in pairs
    ]
    return Comparison(
        changes=tuple(change for change in changes if change.kind is not Kind.UNJUDGED),
        unjudged=tuple(change for change in changes if change.kind is Kind.UNJUDGED),
        along=along if across else "",
        sides=(", ".join(map(str, values[0])), ", ".join(map(str, values[1]))),
    )


def _by_axes(rows: Sequence[CellResult], *, without: str) -> dict[Matched, CellResult]:
    return {frozenset(item for item in row.axes.items() if item[0] != without): row for row in rows}


def _kind(before: CellResult | None, after: CellResult | None) -> Kind:
    if before is None or not judged(before):
        return Kind.NEW if judged(after) else Kind.UNJUDGED
    if after is None or not judged(after):
        return Kind.GONE
    if before.evidence is not after.evidence:
        return Kind.ONLY_EMULATED
    old, new = troubles(before), troubles(after)
    if old and new:
        return Kind.STILL if old == new else Kind.CHANGED
    if before.state is after.state:
        return Kind.SAME
    if new or after.state is State.REFUSED:
        return Kind.CHANGED if old else Kind.REGRESSED
    return Kind.FIXED


def _harm(row: CellResult | None) -> Harm:
    return max((one.harm for one in troubles(row)), default=Harm.NONE) if row is not None else Harm.NONE


def _worse(before: CellResult | None, after: CellResult | None) -> bool:
    """By the most harmful trouble; where that is the same, by trouble that is there now and was not before."""
    if before is None or after is None:
        return False
    old, new = troubles(before), troubles(after)
    if not new:
        return before.state is State.PASS and after.state is State.REFUSED
    if _harm(before) is not _harm(after):
        return _harm(after) > _harm(before)
    return not set(new) <= set(old)


def details(change: Change) -> Iterator[str]:
    """What is on each side, in words: `pass`, `refused`, or each trouble."""
    for side in (change.before, change.after):
        if side is None:
            yield "not planned"
        else:
            yield "; ".join(map(str, troubles(side))) or side.state.value
