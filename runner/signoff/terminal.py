"""What `runner signoff` and `runner verify` print: the decision, what is missing in brief, where the rest is."""

import sys
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from runner import output
from runner.reports import console as consoles
from runner.reports.text import one_line
from runner.signoff.bundle import PAGE, Derived
from runner.signoff.judge import Decision
from runner.signoff.tables import Item, Section
from runner.signoff.verify import Verified

STYLES = {Decision.GO: "bold green", Decision.WITH_WAIVERS: "bold yellow", Decision.NO_GO: "bold red"}
SHORT = {
    "What is asked for": (0, 1, 2, 3, 4, 5),
    "What is missing": (3, 1, 2, 4),
    "What is waived, by whom, until when": (1, 0, 2, 3, 6),
}
"""The sections that a terminal shows, and their columns."""
BRIEF = {"requirement", "gap"}


def exit_code(decision: Decision) -> int:
    """0 where the release may ship, 1 where it may not."""
    return 1 if decision is Decision.NO_GO else 0


def show(made: Derived, where: Path, digest: str) -> None:
    """The start of the page, and the digest that names the bundle."""
    found, decision = made.page, made.judgement.decision
    head = Text(
        f"{decision}: vLLM {one_line(made.inputs.request.vllm)} by policy {one_line(made.inputs.request.policy)}"
    )
    head.stylize(STYLES[decision])
    parts: list[Text | Table] = [head, Text(found.summary)]
    for section in found.sections:
        if section.title in SHORT and section.rows:
            parts += [Text(), Text(section.title, style="bold"), _table(section)]
    console = consoles.make(sys.stdout)
    with console.capture() as captured:
        console.print(Group(*parts))
        _copied(console, f"\nbundle {one_line(str(where), 1000)}, read {PAGE}", digest)
    output.emit("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))


def _copied(console: Console, *lines: str) -> None:
    """Lines that are there to be copied are not broken."""
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _table(section: Section) -> Table:
    columns = SHORT[section.title]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number in columns:
        figures = all(row[number].lines and row[number].lines[0].replace(",", "").isdigit() for row in section.rows)
        table.add_column(section.columns[number], justify="right" if figures else "left", overflow="fold")
    for row in section.rows:
        table.add_row(*(_text(row[number], section.columns[number]) for number in columns))
    return table


def _text(item: Item, column: str) -> Text:
    """The first line says it where the others explain it."""
    lines = item.lines[:1] if column in BRIEF else item.lines
    return Text("\n".join(one_line(line, 200) for line in lines))


def show_verified(found: Verified, folder: Path) -> None:
    """What is wrong, or that nothing is, and what the bundle says."""
    console = consoles.make(sys.stdout)
    with console.capture() as captured:
        if found.findings:
            console.print(Text(f"{one_line(str(folder))} does not hold:", style="bold red"))
            _copied(console, *(f"  {one_line(finding, 1000)}" for finding in found.findings))
        else:
            style = STYLES[Decision(found.decision)]
            console.print(Text.assemble("holds, and says ", (found.decision, style), f": {one_line(found.about)}"))
        if found.digest:
            _copied(console, found.digest)
        if found.unchecked and not found.findings:
            console.print(Text("not checked, only the bundle itself says so:", style="yellow"))
            _copied(console, *(f"  {one}" for one in found.unchecked))
    output.emit(captured.get().rstrip("\n"))
