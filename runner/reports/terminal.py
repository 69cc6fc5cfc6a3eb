"""What a person reads at the end of a run: heat map, totals, failures in groups, exit code."""

from collections.abc import Sequence
from itertools import zip_longest

from rich.console import Console
from rich.text import Text

from runner.model import CellResult, Fault, Verdict
from runner.outcome import VERDICT_ORDER
from runner.reports import behind, heatmap, not_judged, patterns, summary
from runner.reports.fields import Field, fields, headline
from runner.reports.grouping import Group, groups
from runner.reports.text import count, one_line

STYLES: dict[str, str] = {
    **{verdict: "bold red" for verdict in VERDICT_ORDER if verdict.fault is Fault.PRODUCT},
    **{verdict: "bold magenta" for verdict in VERDICT_ORDER if verdict.fault in {Fault.HARNESS, Fault.MACHINE}},
    Verdict.PASS: "green",
    Verdict.XFAIL: "yellow",
    Verdict.FLAKY: "yellow",
    Verdict.REFUSED: "cyan",
    Verdict.UNSUPPORTED: "dim",
    Verdict.SKIPPED: "dim",
    "title": "bold",
    "head": "bold",
    "label": "",
    "": "",
}

GAP = 4
"""Columns between two heat maps side by side."""


def show(
    console: Console,
    results: Sequence[CellResult],
    *,
    exit_code: int,
    title: str = "",
    where: str = "",
    limit: int = 20,
) -> None:
    """Prints the whole report; `where` is the run directory, `limit` how many groups of each kind are shown."""
    if title:
        console.print(Text(one_line(title), style="bold"))
        console.print()
    _heat_maps(console, results)
    axes = patterns.domain(results)
    found = groups(results)
    for expected in (False, True):
        chosen = [group for group in found if group.expected is expected]
        _groups(console, chosen, axes, expected=expected, limit=limit)
    _reasons(console, results)
    for line in summary.expired_lines(results):
        console.print(Text(line, style="bold red"), soft_wrap=True)
    console.print(Text(summary.totals_line(results), style="bold"))
    if known := summary.known_line(results):
        console.print(known, markup=False, soft_wrap=True)
    for hidden in filter(None, (behind.line(results), not_judged.line(results))):
        console.print(Text(hidden), soft_wrap=True)
    if where:
        console.print(Text(f"results in {one_line(where)}"), soft_wrap=True)
    console.print(Text(summary.exit_line(exit_code), style="bold green" if exit_code == 0 else "bold red"))


def _heat_maps(console: Console, results: Sequence[CellResult]) -> None:
    drawn = heatmap.blocks(results)
    maps = [_map(block, console.width) for block in drawn]
    widest = max((max(map(len, text.plain.split("\n"))) for text in maps), default=0)
    beside = max(1, (console.width + GAP) // (widest + GAP))
    for start in range(0, len(maps), beside):
        _side_by_side(console, maps[start : start + beside], widest)
        console.print()
    if drawn:
        console.print(_text(heatmap.legend(drawn)))
    for line in summary.evidence_lines(results):
        _hanging(console, Text(), line)
    console.print()


def _side_by_side(console: Console, maps: Sequence[Text], width: int) -> None:
    for lines in zip_longest(*(text.split("\n") for text in maps), fillvalue=Text("")):
        line = Text()
        for part in lines:
            line.pad_right(-line.cell_len % (width + GAP))
            line.append_text(part)
        line.rstrip()
        console.print(line, no_wrap=True, crop=False)


def _map(block: heatmap.Block, width: int) -> Text:
    return Text("\n").join(_text(line) for line in heatmap.lay_out(block, width))


def _text(line: heatmap.Line) -> Text:
    return Text.assemble(*((text, STYLES[style]) for text, style in line))


def _groups(console: Console, chosen: Sequence[Group], axes: patterns.Domain, *, expected: bool, limit: int) -> None:
    if not chosen:
        return
    name = "known, and still so" if expected else "unexpected"
    console.print(Text(f"{count(len(chosen), 'group')} {name}", style="bold"))
    console.print()
    for group in chosen[:limit]:
        _hanging(console, Text(), headline(group), STYLES[group.verdict])
        for field in fields(group, axes, brief=expected):
            show_field(console, field)
        console.print()
    if len(chosen) > limit:
        console.print(f"… and {count(len(chosen) - limit, 'group')} more, see report.md")
        console.print()


def show_field(console: Console, field: Field) -> None:
    if field.copied:
        # Never broken over lines: it is there to be copied.
        console.print(Text.assemble((f"  {field.name:<9} ", "dim"), field.lines[0]), soft_wrap=True)
        return
    for number, line in enumerate(field.lines):
        # The style is of the name alone: one of the whole text would go on to what is added to it.
        _hanging(console, Text.assemble((f"  {field.name if number == 0 else '':<9} ", "dim")), line)


def _hanging(console: Console, head: Text, text: str, style: str = "") -> None:
    """The text wrapped beside its head, and nothing behind it."""
    for line in Text(text, style).wrap(console, max(20, console.width - head.cell_len)):
        line.rstrip()
        console.print(head + line, no_wrap=True, crop=False)
        head = Text(" " * head.cell_len)


def _reasons(console: Console, results: Sequence[CellResult]) -> None:
    found = summary.reasons(results)
    for reason in found:
        head = Text.assemble((f"{reason.verdict:<11}", STYLES[reason.verdict]), f" {reason.cells:>6,}  ")
        _hanging(console, head, reason.text)
    if found:
        console.print()
