"""The known issues of a matrix as text: of how many cells each speaks, who sees to it, and what ends first."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

from runner import regions
from runner.conditions import Condition
from runner.expand import by_default
from runner.known.entries import region
from runner.matrix import KnownIssue, Matrix
from runner.reports.text import count, one_line


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One entry, and what follows from it."""

    number: int
    """Its place in the file, from 1."""
    entry: KnownIssue
    cells: int | None
    """That it speaks of and no rule excludes; None where they were not counted."""
    cells_by_default: int | None
    """Of them, those that a run takes unless it asks for others."""
    expired: bool
    """Whether its last day is over, or its last release comes before all that a run takes by default."""


def lines(chart: Matrix, *, today: date) -> list[Line]:
    """What ends first is first: the expired, then by day, then by release, then what has no end."""
    found = []
    taken = [rule.selector for rule in chart.rules]
    default = by_default(chart)
    for number, entry in enumerate(chart.known, 1):
        axes = region(entry, chart)
        usual = {axis: tuple(v for v in values if v in default[axis]) for axis, values in axes.items()}
        over = bool(usual["vllm"]) and all(entry.has_expired({"vllm": v}, today) for v in usual["vllm"])
        dated = isinstance(entry.until, date)
        found.append(
            Line(
                number=number,
                entry=entry,
                cells=regions.size(regions.left(axes, taken)),
                cells_by_default=regions.size(regions.left(usual, taken)),
                expired=entry.has_expired({}, today) if dated else over,
            )
        )
    return sorted(found, key=lambda line: _ends(line, chart))


def _ends(line: Line, chart: Matrix) -> tuple[bool, int, int, int]:
    match line.entry.until:
        case date() as day:
            return not line.expired, 0, day.toordinal(), line.number
        case str() as release:
            return not line.expired, 1, chart.axes["vllm"].index(release), line.number
        case _:
            return True, 2, 0, line.number


def as_json(found: list[Line], chart: Matrix) -> list[dict[str, Any]]:
    """The same as plain data; `where` has the axes that an entry names, each with all values that it means."""
    return [
        {
            "number": line.number,
            "where": {axis: list(region(line.entry, chart)[axis]) for axis in line.entry.selector.conditions},
            "state": line.entry.state.value,
            "buffer": list(line.entry.buffer),
            "how": [how.value for how in line.entry.how],
            "flaky": line.entry.flaky,
            "issue": line.entry.issue,
            "because": line.entry.because,
            "owner": line.entry.owner,
            "until": str(line.entry.until or ""),
            "expired": line.expired,
            "cells": line.cells,
            "cells_by_default": line.cells_by_default,
        }
        for line in found
    ]


def as_text(found: list[Line], width: int) -> str:
    """A block for each entry; links are never broken over lines, since they are there to be copied."""
    return "\n\n".join("\n".join(_block(line, width)) for line in found)


def _block(line: Line, width: int) -> Iterator[str]:
    entry = line.entry
    what = [entry.state.value, *map(str, entry.how), *(["in", ", ".join(entry.buffer)] if entry.buffer else [])]
    cells, usual = ("very many" if n is None else f"{n:,}" for n in (line.cells, line.cells_by_default))
    flaky = ["flaky"] if entry.flaky else []
    head = " · ".join([" ".join(what), *flaky, f"{cells} cells, {usual} by default"])
    yield from _wrapped(f"{line.number:>3}  ", head, width)
    yield from _wrapped(
        "     where    ", " ".join(_condition(a, c) for a, c in entry.selector.conditions.items()), width
    )
    yield from _wrapped("     because  ", entry.because, width)
    yield f"     issue    {one_line(entry.issue, 2000)}"
    yield from _wrapped("     owner    ", entry.owner or "nobody", width)
    yield f"     until    {entry.until or 'no end'}{', EXPIRED' if line.expired else ''}"


def _wrapped(head: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        one_line(text, 2000),
        max(40, width),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
    )


def _condition(axis: str, condition: Condition) -> str:
    return f"{axis}{condition.op}{','.join(map(str, condition.values))}"


def summary(found: list[Line]) -> str:
    """`12 known issues, 2 expired, 3 without an owner, 4 without an end`"""
    counts = {
        "expired": sum(line.expired for line in found),
        "without an owner": sum(not line.entry.owner for line in found),
        "without an end": sum(line.entry.until is None for line in found),
    }
    return ", ".join([count(len(found), "known issue"), *(f"{n:,} {what}" for what, n in counts.items() if n)])
