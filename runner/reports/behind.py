"""What else was judged in a cell that a known issue colours, and what was not: `xfail` hides nothing."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.model import CellResult, State, Verdict
from runner.reports.findings import findings
from runner.reports.grouping import Group
from runner.reports.text import count, one_line

COLOURED = (Verdict.XFAIL, Verdict.FLAKY)
MOST_NAMES = 6
"""Names of cases in one sentence about a group; of a cell, twice as many. More are counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Behind:
    """The cases of a cell, told apart."""

    explained: tuple[str, ...]
    """The known issue explains what they say."""
    unjudged: tuple[str, ...]
    """They ended at what another case of the cell tells, or did not run for it, and judged nothing else."""
    others: Mapping[State, int]
    """How many ended otherwise, by state; most of them passed."""

    @property
    def cases(self) -> int:
        return len(self.explained) + len(self.unjudged) + sum(self.others.values())

    def __str__(self) -> str:
        """`the known issue explains 2 of 11 cases; 7 passed; 2 could not judge: test_a, test_b`."""
        said = [f"the known issue explains {len(self.explained):,} of {count(self.cases, 'case')}"]
        said += [f"{number:,} {_word(state)}" for state, number in self.others.items()]
        if self.unjudged:
            said.append(f"{len(self.unjudged):,} could not judge: {names(self.unjudged, 2 * MOST_NAMES)}")
        return "; ".join(said)


def of(result: CellResult) -> Behind | None:
    """None where no known issue colours trouble, and where it has no case."""
    if result.verdict not in COLOURED or not result.state.bad or not result.cases:
        return None
    found = findings(result)
    explained = tuple(dict.fromkeys(one.case for one in found if one.case))
    unjudged = tuple(dict.fromkeys(name for one in found for name in one.also))
    taken = {*explained, *unjudged}
    others = Counter(case.state for case in result.cases if case.name not in taken)
    return Behind(explained=explained, unjudged=unjudged, others=dict(others.most_common()))


def besides(group: Group) -> str:
    """What else the cases of a group's cells said, all cells together.

    `9 cases passed; 2 ended at the same overflow and judged nothing else: test_a, test_b; 1 is in other groups`.
    """
    cells = [found for row in group.cells if (found := of(row))]
    others = sum((Counter(found.others) for found in cells), Counter[State]())
    in_others = sum(found.cases for found in cells) - others.total() - group.times_told - group.times_unjudged
    said = [f"{count(n, 'case') if i == 0 else f'{n:,}'} {_word(s)}" for i, (s, n) in enumerate(others.most_common())]
    if group.unjudged:
        number = f"{group.times_unjudged:,}" if said else count(group.times_unjudged, "case")
        said.append(f"{number} ended at the same {group.state} and judged nothing else: {names(group.unjudged)}")
    if in_others > 0:
        said.append(f"{in_others:,} {'is' if in_others == 1 else 'are'} in other groups")
    return "; ".join(said) or "no other case was judged"


def line(results: Sequence[CellResult]) -> str:
    """How many cases known issues kept from judging; empty where no issue counts.

    `384 xfail: behind them 1,152 of 4,992 cases were not judged`.
    """
    coloured = [row for row in results if row.verdict in COLOURED and row.state.bad]
    cells = [found for row in coloured if (found := of(row))]
    unjudged = sum(len(found.unjudged) for found in cells)
    number = sum(found.cases for found in cells)
    unrun = sum(row.verdict is Verdict.SKIPPED and bool(row.known) for row in results)
    said = []
    if coloured:
        head = " + ".join(
            f"{n:,} {verdict}" for verdict in COLOURED if (n := sum(row.verdict is verdict for row in coloured))
        )
        said.append(f"{head}: behind them {unjudged:,} of {count(number, 'case')} were not judged")
    if unrun:
        said.append(f"{count(unrun, 'cell')} known to end its process {'was' if unrun == 1 else 'were'} not run")
    return "; ".join(said)


def names(cases: Sequence[str], most: int = MOST_NAMES) -> str:
    """`test_a, test_b, and 3 more`."""
    more = len(cases) - most
    shown = ", ".join(one_line(case, 120) for case in cases[:most])
    return shown + (f", and {more:,} more" if more > 0 else "")


def _word(state: State) -> str:
    return "passed" if state is State.PASS else state.value
