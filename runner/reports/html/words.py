"""What the page says of a run besides the map: a line that says what is bad, totals, groups, headroom, evidence."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from runner.model import CellResult, Evidence, Fault, How, Verdict
from runner.outcome import totals
from runner.reports import heatmap, patterns
from runner.reports.fields import Field, fields, headline
from runner.reports.grouping import Group, groups
from runner.reports.html.trend import Line
from runner.reports.summary import evidence_of
from runner.reports.text import count, one_line

NO_EVIDENCE_OF = {
    Evidence.DEVICE: "other archs, and what happens one time in a thousand",
    Evidence.EMULATED: "kernels: no machine code, race or speed was seen, and a green cell does not sign for its arch",
    Evidence.INTERPRETED: "machine code, races, speed",
    Evidence.CPU: "any GPU kernel",
}
"""docs/evidence.md has the long form."""

MOST_GROUPS = 100
"""Shown; the rest is counted."""


MOST_SHARE = Fraction(1_000_000)
"""Results may hold any number; a picture may not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Total:
    """How many cells have one verdict, and how many had it before."""

    verdict: Verdict
    number: int
    glyph: str
    trend: Line | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A group of failures as the page lists it; `cells` are positions among the rows."""

    expected: bool
    verdict: Verdict
    title: str
    fields: Sequence[Field]
    cells: Sequence[int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Headroom:
    """A buffer over the cells that show it too small. Shares are of what it has: 1.5 needs half as much again."""

    buffer: str
    how: str
    cells: Sequence[int]
    required: int
    allocated: int
    """Of the cell that is short of the largest share."""
    shares: Sequence[tuple[float, int]]
    """Each share that occurs, and in how many cells, smallest first; an allocation of nothing counts as one entry."""

    @property
    def worst(self) -> float:
        return self.shares[-1][0]


def verdict_line(rows: Sequence[CellResult]) -> str:
    """What a reader must know first, in words."""
    if not rows:
        return "No cell was planned."
    product = [row for row in rows if row.verdict.fault is Fault.PRODUCT]
    other = [row for row in rows if row.verdict.fault in {Fault.HARNESS, Fault.MACHINE}]
    if product:
        (backend, most), *rest = Counter(str(row.axes.get("backend", "cells")) for row in product).most_common()
        where = f"; all of {one_line(backend, 40)}" if not rest else f"; most of {one_line(backend, 40)} ({most:,})"
        are = "is" if len(product) == 1 else "are"
        line = f"{count(len(product), 'cell')} {are} not as expected: {_sum(product)}{where}."
    elif other:
        line = f"Nothing wrong was seen, but {count(len(other), 'cell')} could not be judged: {_sum(other)}."
    else:
        known = sum(row.verdict in {Verdict.XFAIL, Verdict.FLAKY} for row in rows)
        passed = sum(row.verdict is Verdict.PASS for row in rows)
        failing = f", {known:,} fail as known issues say (--no-known judges without them)" if known else ""
        line = f"Nothing unexpected: {passed:,} passed{failing}."
    if product and other:
        line += f" {count(len(other), 'cell')} could not be judged: {_sum(other)}."
    return f"{line} {_proof(rows)}"


def _sum(rows: Sequence[CellResult]) -> str:
    return ", ".join(f"{number:,} {verdict}" for verdict, number in totals(rows, planned=len(rows)).items())


def _proof(rows: Sequence[CellResult]) -> str:
    found = evidence_of(rows)
    if not found:
        return "No cell ran: there is no evidence."
    if Evidence.DEVICE not in found:
        return f"No GPU was used ({', '.join(f'{number:,} {evidence}' for evidence, number in found.items())})."
    if len(found) == 1:
        return "Everything that ran did so on a GPU."
    there = found[Evidence.DEVICE]
    return f"Of {count(sum(found.values()), 'result')} {there:,} {'was' if there == 1 else 'were'} obtained on a GPU."


def total_of_each(rows: Sequence[CellResult], trends: Mapping[Verdict, Line]) -> list[Total]:
    """The verdicts that occur, worst first; and those that occurred before, with 0."""
    counts = totals(rows, planned=len(rows))
    gone = {verdict: 0 for verdict in trends if verdict not in counts}
    return [
        Total(verdict=verdict, number=number, glyph=heatmap.GLYPHS[verdict], trend=trends.get(verdict))
        for verdict, number in {**counts, **gone}.items()
    ]


def shown_groups(rows: Sequence[CellResult], axes: patterns.Domain) -> tuple[list[Shown], str]:
    """The groups of failures, unexpected ones first, and what was left out."""
    place = {row.id: number for number, row in enumerate(rows)}
    found = groups(rows)
    left_out = len(found) - MOST_GROUPS
    note = f"… and {count(left_out, 'group')} more, see report.md" if left_out > 0 else ""
    return [_shown(group, axes, place) for group in found[:MOST_GROUPS]], note


def _shown(group: Group, axes: patterns.Domain, place: Mapping[str, int]) -> Shown:
    return Shown(
        expected=group.expected,
        verdict=group.verdict,
        title=headline(group),
        fields=fields(group, axes, brief=group.expected),
        cells=sorted(place[row.id] for row in group.cells),
    )


def headroom(rows: Sequence[CellResult]) -> list[Headroom]:
    """Each buffer that some cell shows too small, the one short of the largest share first."""
    found: dict[str, list[tuple[Fraction, int, int, int, How]]] = defaultdict(list)
    for number, row in enumerate(rows):
        for over in row.overflow:
            share = min(max(Fraction(over.required, max(over.allocated, 1)), Fraction(0)), MOST_SHARE)
            found[over.buffer].append((share, over.required, over.allocated, number, over.how))
    return sorted((_headroom(buffer, each) for buffer, each in found.items()), key=lambda one: (-one.worst, one.buffer))


def _headroom(buffer: str, found: Sequence[tuple[Fraction, int, int, int, How]]) -> Headroom:
    worst = max(found)
    by_cell = {number: share for share, _, _, number, _ in sorted(found)}
    hows = Counter(how for *_, how in found)
    return Headroom(
        buffer=one_line(buffer, 80),
        how=", ".join(f"{how} {number:,}" for how, number in hows.most_common()),
        cells=sorted(by_cell),
        required=worst[1],
        allocated=worst[2],
        shares=[(float(share), number) for share, number in sorted(Counter(by_cell.values()).items())],
    )
