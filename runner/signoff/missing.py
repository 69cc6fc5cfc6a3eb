"""What stands in the way of a GO, in few rows: what is broken, what was not shown, what is known; and what to do."""

import shlex
from collections import defaultdict
from collections.abc import Sequence

from runner.model import Evidence, Fault, State, Verdict
from runner.reports.patterns import Domain
from runner.signoff import gaps
from runner.signoff.inputs import Inputs
from runner.signoff.judge import Judged, Judgement
from runner.signoff.tables import Section, given, own
from runner.signoff.where import where

GROUPS = 40
"""Rows of the table; what is beyond is counted."""
DETAILS = 4
"""Ways in which one known issue shows."""


def section(inputs: Inputs, judgement: Judgement, axes: Domain) -> Section | None:
    groups: dict[tuple[str, str, str], list[Judged]] = defaultdict(list)
    details: dict[tuple[str, str, str], dict[str, None]] = defaultdict(dict)
    for one in judgement.cells:
        for gap in one.open:
            key = one.requirement.name, gap.name, gap.issue or gap.detail
            groups[key].append(one)
            details[key] |= {gap.detail: None} if gap.issue else {}
    if not groups:
        return None
    largest = sorted(groups.items(), key=lambda item: (_urgency(item[0][1]), -len(item[1])))
    rows = [
        (
            given(name),
            own(gap, gaps.MEANING.get(gap, "not accepted")),
            given(found, *list(details[name, gap, found])[:DETAILS]),
            own(f"{len(cells):,}"),
            given(*where(cells, axes)),
            given(_remedy(inputs, cells, gap)),
        )
        for (name, gap, found), cells in largest[:GROUPS]
    ]
    left_out = (
        (own(f"{len(groups) - GROUPS:,} smaller groups are in the table below."),) if len(groups) > GROUPS else ()
    )
    columns = ("requirement", "gap", "found", "cells", "where", "what to do")
    how = own("Patterns are among the required cells; an axis that is not said has any of their values.")
    return Section(title="What is missing", lines=(how, *left_out), columns=columns, rows=tuple(rows))


def _urgency(gap: str) -> int:
    """What is broken before what was not shown, and that before what is known."""
    if gap == gaps.REGRESSED:
        return 0
    if gap in gaps.MEANING:
        return 1
    return 0 if Verdict(gap).fault is not Fault.NONE else 2


def _remedy(inputs: Inputs, cells: Sequence[Judged], gap: str) -> str:
    """The command that obtains what is missing, or for a verdict what else there is to do."""
    if gap not in gaps.MEANING or gap == gaps.REGRESSED:
        wanted = State.REFUSED.value if gap == gaps.REGRESSED else gap
        rows = (attempt.row for one in cells for attempt in one.attempts)
        repro = next((row.repro for row in rows if wanted in {row.verdict.value, row.state.value} and row.repro), "")
        return f"fix it, or let an approver waive it: {repro}"
    asked = cells[0].requirement
    archs = ",".join(dict.fromkeys(str(one.cell.axes["arch"]) for one in cells))
    all_archs = ",".join(dict.fromkeys(str(cell.axes["arch"]) for cell in asked.cells))
    same = inputs.chart.tiers.get(asked.tier) == asked.tier_filters  # else the name means something else there
    tier = f" --tier {shlex.quote(asked.tier)}" if asked.tier and same else ""
    spelt = () if tier else asked.tier_filters
    words = [f"vllm={inputs.request.vllm}", *spelt, *asked.filters, *([archs] if archs != all_archs else [])]
    where = f"with a GPU of {archs}: " if asked.evidence == (Evidence.DEVICE,) else ""
    return f"{where}runner{tier} " + " ".join(f"--filter {shlex.quote(word)}" for word in words)
