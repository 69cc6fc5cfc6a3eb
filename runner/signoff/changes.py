"""What changed since another run, such as the last release's: a row for each kind of change."""

from collections.abc import Sequence

from runner import compare
from runner.compare import Change, Kind
from runner.model import CellResult, State, Verdict
from runner.reports.patterns import compact, domain
from runner.reports.text import count
from runner.signoff.inputs import Inputs
from runner.signoff.tables import Section, given, own

PATTERNS = 6
EXAMPLES = 3

WORDS = {
    Kind.REGRESSED: "passed or was refused before, has trouble now",
    Kind.CHANGED: "has other trouble now",
    Kind.ONLY_EMULATED: "the evidence differs: no claim either way",
    Kind.GONE: "was judged before, is not now",
    Kind.NEW: "is judged now, was not before",
    Kind.FIXED: "had trouble, passes now",
    Kind.STILL: "has the same trouble as before",
    Kind.SAME: "is well, as before",
}


def section(inputs: Inputs) -> Section:
    """The comparison of the newest result of each cell with the other run's."""
    now = {row.id: row for run in inputs.runs for row in run.rows.values()}
    found = compare.compare(inputs.since, tuple(now.values()))
    rows = []
    for kind in Kind:
        changes = found.of(kind)
        if not changes:
            continue
        worse = sum(change.worse for change in changes)
        rows.append(
            (
                own(kind.value.replace("_", " "), WORDS.get(kind, "")),
                own(f"{len(changes):,}"),
                own(f"{worse:,}"),
                given(*_where(changes)),
                given(*_examples(changes)) if kind not in {Kind.SAME, Kind.NEW} else own(""),
            )
        )
    before = inputs.request.since + (f" (vLLM {found.sides[0]})" if found.along else "")
    return Section(
        title="What changed since the run before",
        lines=(given(before), own(f"{count(found.comparable, 'cell')} judged in both.")),
        columns=("change", "cells", "worse", "where", "was, and is"),
        rows=tuple(rows),
    )


def _where(changes: Sequence[Change]) -> list[str]:
    rows = [
        CellResult(id="", axes=one.axes, state=State.NOT_RUN, verdict=Verdict.NOT_RUN, evidence=side.evidence)
        for one in changes
        if (side := one.after or one.before)
    ]
    return compact(rows, domain(rows), limit=PATTERNS)


def _examples(changes: Sequence[Change]) -> list[str]:
    found = dict.fromkeys(" → ".join(compare.details(one)) for one in changes)
    more = [f"… and {len(found) - EXAMPLES} other pairs"] if len(found) > EXAMPLES else []
    return [*list(found)[:EXAMPLES], *more]
