"""A group of failures as named fields: what the terminal and the Markdown report both print."""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.model import Overflow, Verdict
from runner.reports import text
from runner.reports.grouping import Group
from runner.reports.patterns import Domain, compact
from runner.reports.summary import evidence_of


@dataclass(frozen=True, slots=True)
class Field:
    """One named thing to know about a group; `copied` ones are commands and links, never to be broken."""

    name: str
    lines: Sequence[str]
    copied: bool = False


def headline(group: Group) -> str:
    """`overflow raised in paged_kv_indptr · flashinfer · 432 cells · emulated`."""
    bare = group.verdict is Verdict.XPASS or group.verdict.value == group.state.value
    what = str(group.verdict) if bare else f"{group.verdict}: {group.state}"
    what += (f" {group.how}" if group.how else "") + (f" in {group.buffer}" if group.buffer else "")
    evidence = ", ".join(evidence_of(group.cells))
    parts = [what, group.backend, text.count(len(group.cells), "cell"), evidence]
    return " · ".join(text.one_line(part, 120) for part in parts if part)


def fields(group: Group, axes: Domain, *, brief: bool) -> list[Field]:
    """Where it happens, in which case, the numbers, the batch, the words, the command that shows it again."""
    example = group.example
    found = [Field("where", compact(group.cells, axes, limit=3 if brief else 6))]
    if group.cases:
        first, *others = group.cases
        also = f", and {text.count(len(others), 'other')}" if others else ""
        found.append(Field("case", [text.one_line(first, 200) + also]))
    if example.overflow:
        overflow = example.overflow
        found.append(Field("buffer", [_numbers(overflow, group.widest)]))
        found.append(Field("batch", [text.batch(overflow.batch)]))
    if example.message.strip() and not brief:
        found.append(Field("message", text.several_lines(example.message, lines=6)))
    if group.known:
        found.append(Field("known", [text.one_line(group.known)], copied=True))
    if example.result.repro:
        found.append(Field("repro", [text.one_line(example.result.repro, 1000)], copied=True))
    return found


def _numbers(example: Overflow, widest: Overflow | None) -> str:
    words = f"required {example.required:,}, allocated {example.allocated:,}"
    if widest and (widest.required, widest.allocated) != (example.required, example.allocated):
        words += f"; at worst required {widest.required:,}, allocated {widest.allocated:,}"
    return words
