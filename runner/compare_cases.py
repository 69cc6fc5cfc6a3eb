"""What the cases of one cell say on each side of a comparison. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from runner.model import CellResult, Fault, State
from runner.troubles import THE_CELL, says

_NEVER_BEGUN = frozenset({State.INFRA, State.NOT_RUN})


@dataclass(frozen=True, kw_only=True, slots=True)
class Both:
    """What one case says on each side, or the cell as a whole."""

    name: str
    before: State
    after: State

    @property
    def worse(self) -> bool:
        """It passed or was refused, and now it breaks or gives no verdict for a reason that may be vLLM's; or it passed
        and is refused now."""
        if self.after.fault in {Fault.PRODUCT, Fault.HARNESS}:
            return self.before in {State.PASS, State.REFUSED}
        return self.refused

    @property
    def refused(self) -> bool:
        return self.before is State.PASS and self.after is State.REFUSED

    @property
    def gone(self) -> bool:
        return says(self.before) and not says(self.after)

    @property
    def lost(self) -> bool:
        """It was judged, and now nobody asked vLLM; what a rule excludes, or nobody planned, is not missed."""
        return self.gone and not self.worse and self.after is not State.UNSUPPORTED

    @property
    def alike(self) -> bool:
        return self.before is self.after or self.before.fault is self.after.fault is Fault.PRODUCT


def of(before: CellResult | None, after: CellResult | None, *, same_by_design: bool) -> Iterator[Both]:
    """Each case that does not pass on both sides, and the cell itself.

    A case that is not there any more is missing; where the cases themselves are others, nobody ran it. Where the two
    have other cases by design, one that only the side before has is left out, and of the other side what is no trouble.
    """
    old, new = ({case.name for case in row.cases} if row is not None else set() for row in (before, after))
    whole = not (old and new)
    yield from _unless_well(THE_CELL, _befell(before, whole=whole), _befell(after, whole=whole))
    vanished = State.NOT_RUN if other_cases(before, after) else State.MISSING
    for name in dict.fromkeys(case.name for row in (before, after) if row is not None for case in row.cases):
        one, other = _said(before, name), _said(after, name, vanished=vanished)
        by_design = name not in new or (name not in old and other.fault is not Fault.PRODUCT)
        if same_by_design or whole or not by_design:
            yield from _unless_well(name, one, other)


def _unless_well(name: str, before: State, after: State) -> Iterator[Both]:
    if (before, after) != (State.PASS, State.PASS):
        yield Both(name=name, before=before, after=after)


def other_cases(before: CellResult | None, after: CellResult | None) -> bool:
    """Whether both sides say by which cases they were judged, and these are not the same."""
    sides = {row.environment.get("cases_digest", "") for row in (before, after) if row is not None}
    return len(sides - {""}) > 1


def _befell(row: CellResult | None, *, whole: bool) -> State:
    """What befell a cell itself: its state, but a pass where a case explains that; of the `whole`, its state anyhow.

    A cell that was not planned is `unsupported`.
    """
    if row is None:
        return State.UNSUPPORTED
    return State.PASS if not whole and row.state in {case.state for case in row.cases} else row.state


def _said(row: CellResult | None, name: str, *, vanished: State = State.MISSING) -> State:
    """What the case of this name says in a cell; `vanished` is the word for one that it lacks.

    What a death kept from running is `missing`: vLLM may be the reason. What the end of the run, or the machine, kept
    from running stays `not_run` or `infra`. In a cell without any case, each says what the cell does; none passed.
    """
    if row is None:
        return State.UNSUPPORTED
    states = {case.name: case.state for case in row.cases}
    wholly = all(state is row.state for state in states.values())
    if name in states:
        state = states[name]
        if state is State.NOT_RUN and row.state not in _NEVER_BEGUN:
            return State.MISSING
        return State.SKIPPED if state is State.UNSUPPORTED and not wholly else state
    if row.state in {*_NEVER_BEGUN, State.REFUSED} or (wholly and row.state in {State.SKIPPED, State.UNSUPPORTED}):
        return row.state
    return vanished if states or row.state is State.PASS else row.state
