"""Which overflow exists where, and how it shows: per backend a Markdown table of releases against archs."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from runner.model import AxisValue, CellResult, State
from runner.reports import patterns, summary
from runner.reports.markdown import code

ROW, COLUMN = "vllm", "arch"
NOTHING = "-"
"""No cell was run there: the matrix has none, or a rule takes it out."""
HOLDS = "holds"
"""Every cell passed."""


def render(results: Sequence[CellResult]) -> str:
    """A section per backend. Neighbouring releases that say the same share a row; a condition says which cells."""
    axes = patterns.domain(results)
    sections = [_section(str(backend), _of(results, "backend", backend), axes) for backend in axes.get("backend", ())]
    return "\n".join([*(f"{line}\n" for line in summary.evidence_lines(results)), *sections])


def _section(backend: str, results: Sequence[CellResult], axes: patterns.Domain) -> str:
    columns = [
        value for value in axes[COLUMN] if any(r.state is not State.UNSUPPORTED for r in _of(results, COLUMN, value))
    ]
    rows = [
        (str(value), tuple(_entry(_of(_of(results, ROW, value), COLUMN, column)) for column in columns))
        for value in axes[ROW]
    ]
    lines = [f"| vLLM | {' | '.join(_name(str(column)) for column in columns)} |", f"| --- |{' --- |' * len(columns)}"]
    for entries, same in groupby(rows, key=lambda row: row[1]):
        names = [name for name, _ in same]
        name = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        lines.append(f"| {_name(name)} | {' | '.join(entries)} |")
    return f"## {_name(backend)}\n\n" + "\n".join(lines) + "\n"


def _name(text: str) -> str:
    """As it is where it is a word like those of a matrix, else as code."""
    return text if re.fullmatch(r"[\w. ]{1,80}", text, re.ASCII) else code(text, 80, in_table=True)


def _entry(results: Sequence[CellResult]) -> str:
    """What the cells of one release and arch say; a state or overflow that only some have carries its condition."""
    ran = [result for result in results if result.state is not State.UNSUPPORTED]
    if not ran:
        return NOTHING
    if all(result.state is State.PASS for result in ran):
        return HOLDS
    found: Mapping[str, dict[str, CellResult]] = defaultdict(dict)
    for result in ran:
        for word in _words(result):
            found[word][result.id] = result
    return "<br>".join(
        word + ("" if len(cells) == len(ran) else f" ({_condition(list(cells.values()), ran)})")
        for word, cells in found.items()
    )


def _words(result: CellResult) -> Iterator[str]:
    for overflow in result.overflow:
        yield f"{code(overflow.buffer, 80, in_table=True)} {overflow.how}"
    if result.state not in {State.PASS, State.OVERFLOW}:
        yield str(result.state)


def _condition(cells: Sequence[CellResult], ran: Sequence[CellResult]) -> str:
    """Which of the cells that ran, by the axes that tell."""
    here = patterns.domain(ran)
    shown = [patterns.say(box, here) for box in patterns.boxes(cells, here)]
    words = "; ".join(shown[:3]) + ("; …" if len(shown) > 3 else "")
    return words if re.fullmatch(r"[\w.,;=<>! …]{1,200}", words) else code(words, 200, in_table=True)


def _of(results: Sequence[CellResult], axis: str, value: AxisValue) -> list[CellResult]:
    return [result for result in results if result.axes[axis] == value]
