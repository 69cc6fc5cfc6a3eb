"""What stands in the way of a GO, in few rows: what is broken, what was not shown, what is known; and what to do."""

import shlex
from collections import defaultdict
from collections.abc import Sequence

from runner.model import Evidence, Fault, Verdict
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
    return Section(title="What is missing", lines=left_out, columns=columns, rows=tuple(rows))


def _urgency(gap: str) -> int:
    """What is broken before what was not shown, and that before what is known."""
    if gap in gaps.MEANING:
        return 1
    return 0 if Verdict(gap).fault is not Fault.NONE else 2


def _remedy(inputs: Inputs, cells: Sequence[Judged], gap: str) -> str:
    """The command that obtains what is missing, or for a verdict what else there is to do."""
    if gap not in gaps.MEANING:
        repro = next((a.row.repro for one in cells for a in one.attempts if a.row.verdict == gap and a.row.repro), "")
        return f"fix it, or let an approver waive it: {repro}"
    asked = cells[0].requirement
    archs = ",".join(dict.fromkeys(str(one.cell.axes["arch"]) for one in cells))
    all_archs = ",".join(dict.fromkeys(str(cell.axes["arch"]) for cell in asked.cells))
    words = [f"vllm={inputs.request.vllm}", *asked.filters, *([archs] if archs != all_archs else [])]
    tier = f" --tier {shlex.quote(asked.tier)}" if asked.tier else ""
    where = f"with a GPU of {archs}: " if asked.evidence == (Evidence.DEVICE,) else ""
    return f"{where}runner{tier} " + " ".join(f"--filter {shlex.quote(word)}" for word in words)
