"""A group of failures as named fields: what the terminal, the Markdown report and the page all print."""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.model import Cause, Overflow, Verdict
from runner.reports import behind, text
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
    bare = group.verdict in {Verdict.XPASS, Verdict.UNEXPECTED} or group.verdict.value == group.state.value
    what = str(group.verdict) if bare else f"{group.verdict}: {group.state}"
    what += (f" {group.how}" if group.how else "") + (f" in {group.buffer}" if group.buffer else "")
    if group.causes and not group.buffer:
        what += f" at {group.causes[0].file.rpartition('/')[2]}:{group.causes[0].line}"
    evidence = ", ".join(evidence_of(group.cells))
    parts = [what, _several(group.backends), text.count(len(group.cells), "cell"), evidence]
    return " · ".join(text.one_line(part, 120) for part in parts if part)


def fields(group: Group, axes: Domain, *, brief: bool) -> list[Field]:
    """Where it happens, in which case, the numbers, the batch, the words, the command that shows it again.

    Of what is known it says what else was judged in its cells; of what is not, which cases it took with it.
    """
    example = group.example
    found = [Field("where", compact(group.cells, axes, limit=3 if brief else 6))]
    if group.cases:
        found.append(Field("case", [text.one_line(group.cases[0], 200)]))
    if group.expected:
        found.append(Field("besides", [behind.besides(group)]))
    elif others := group.cases[1:]:
        found.append(Field("also", [f"{text.count(len(others), 'case')}: {behind.names(others)}"]))
    if example.overflow:
        overflow = example.overflow
        found.append(Field("buffer", [_numbers(overflow, group.widest)]))
        found.append(Field("batch", [text.batch(overflow.batch)]))
    if group.causes:
        found.append(Field("raised", [raised(group.causes[0]), *_elsewhere(group.causes)]))
    if example.message.strip() and not brief:
        found.append(Field("message", text.several_lines(example.message, lines=6)))
    if group.known:
        found.append(Field("known", [text.one_line(group.known)], copied=True))
    if example.result.repro:
        found.append(Field("repro", [text.one_line(example.result.repro, 1000)], copied=True))
    return found


def raised(cause: Cause) -> str:
    """`ValueError at vllm/v1/attention/backends/flashinfer.py:812 in build: provided out is the wrong size`."""
    where = f"{text.one_line(cause.file, 160)}:{cause.line} in {text.one_line(cause.function, 80)}"
    words = text.one_line(cause.words)
    return f"{text.one_line(cause.exception, 80)} at {where}" + (f": {words}" if words else "")


def _elsewhere(causes: Sequence[Cause]) -> list[str]:
    """The other lines of a cause that stands elsewhere in other releases."""
    lines = [f"{text.one_line(cause.file, 160)}:{cause.line}" for cause in causes[1:]]
    more = [f"and {len(lines) - 5:,} more"] if len(lines) > 5 else []
    return [f"in other releases at {', '.join([*lines[:5], *more])}"] if lines else []


def _several(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most:,} more"


def _numbers(example: Overflow, widest: Overflow | None) -> str:
    words = f"required {example.required:,}, allocated {example.allocated:,}"
    if widest and (widest.required, widest.allocated) != (example.required, example.allocated):
        words += f"; at worst required {widest.required:,}, allocated {widest.allocated:,}"
    return words
