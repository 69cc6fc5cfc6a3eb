"""Which cells a row of a page speaks of, as few patterns."""

from collections.abc import Sequence

from runner.model import CellResult, Evidence, State, Verdict
from runner.reports.patterns import Domain, compact
from runner.signoff.judge import Judged

PATTERNS = 6


def where(cells: Sequence[Judged], axes: Domain) -> list[str]:
    """The cells; a pattern too many is counted."""
    return compact([bare(one) for one in cells], axes, limit=PATTERNS)


def bare(one: Judged) -> CellResult:
    """A cell as the patterns want it, which look at its axes alone."""
    return CellResult(
        id=one.cell.id,
        axes=one.cell.axes,
        state=State.NOT_RUN,
        verdict=Verdict.NOT_RUN,
        evidence=Evidence.EMULATED,
    )
