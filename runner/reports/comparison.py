"""What `runner compare` prints for a person, and as JSON; pull_request.py has its Markdown."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from runner.compare import Change, Comparison, Kind, troubles
from runner.model import CellResult
from runner.reports import terminal
from runner.reports.changes import PATTERNS, alike, domain, exit_line, fields, headline, summary_lines
from runner.reports.patterns import compact
from runner.reports.text import count, one_line

GROUPS = 40
"""Groups shown on a terminal."""
STYLES = {True: "bold red", False: "bold"}


def show(console: Console, found: Comparison, *, title: str) -> None:
    """For a person."""
    axes, groups = domain(found), alike(found)
    console.print(Text(one_line(title, 1000), style="bold"), soft_wrap=True)
    for line in summary_lines(found):
        console.print(Text(line), soft_wrap=True)
    console.print()
    for group in groups[:GROUPS]:
        console.print(Text(headline(group), style=STYLES[group.worse]))
        for field in fields(group, axes):
            terminal.show_field(console, field)
        console.print()
    if left := groups[GROUPS:]:
        cells = sum(len(group.changes) for group in left)
        console.print(f"… and {count(len(left), 'group')} more with {count(cells, 'cell')}, see --json\n")
    console.print(Text(exit_line(found), style="bold red" if found.exit_code else "bold green"))


def to_json(found: Comparison) -> str:
    """Counts, groups with their patterns, and every change with both sides."""
    axes = domain(found)
    counts = Counter(change.kind for change in found.changes)
    return json.dumps(
        {
            "along": found.along,
            "sides": found.sides,
            "exit_code": found.exit_code,
            "counts": {kind.value: counts[kind] for kind in Kind if kind is not Kind.UNJUDGED},
            "unjudged": len(found.unjudged),
            "worse": sum(change.worse for change in found.changes),
            "lost": sum(change.lost for change in found.changes),
            "groups": [
                {
                    "kind": group.kind,
                    "worse": group.worse,
                    "before": group.before,
                    "after": group.after,
                    "evidence": group.changes[0].evidence,
                    "cells": len(group.changes),
                    "patterns": compact(group.changes, axes, limit=PATTERNS),
                }
                for group in alike(found)
            ],
            "changes": [_change(change) for change in found.changes if change.kind is not Kind.SAME],
        },
        indent=1,
    )


def _change(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "worse": change.worse,
        "axes": dict(change.axes),
        "before": _side(change.before),
        "after": _side(change.after),
    }


def _side(row: CellResult | None) -> dict[str, Any] | None:
    if row is None:
        return None
    found: Sequence[str] = [str(one) for one in troubles(row)]
    return {"id": row.id, "state": row.state, "verdict": row.verdict, "evidence": row.evidence, "troubles": found}
