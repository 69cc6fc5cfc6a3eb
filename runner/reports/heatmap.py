"""The heat map: backend and arch down, chunk, hybrid and k across, a block for each load; one glyph is one cell.

Laid out as plain segments, so that the terminal can colour them and Markdown can quote them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runner.axes import in_id
from runner.model import AxisValue, CellResult, Evidence, Verdict
from runner.reports.patterns import Domain, domain
from runner.reports.summary import evidence_of
from runner.reports.text import one_line

GLYPHS = {
    Verdict.PASS: ".",
    Verdict.XFAIL: "x",
    Verdict.FLAKY: "~",
    Verdict.REFUSED: "r",
    Verdict.UNSUPPORTED: "-",
    Verdict.SKIPPED: "s",
    Verdict.UNEXPECTED: "R",
    Verdict.XPASS: "P",
    Verdict.CRASH: "C",
    Verdict.OOM: "M",
    Verdict.TIMEOUT: "T",
    Verdict.OVERFLOW: "O",
    Verdict.FAIL: "F",
    Verdict.SUBSTITUTED: "S",
    Verdict.MISSING: "?",
    Verdict.INFRA: "I",
    Verdict.NOT_RUN: "N",
}
"""ASCII, so that it survives every terminal and log; bad ones are capitals, so that it reads without colour."""

ROWS = ("backend", "arch")
COLUMNS = ("chunk", "hybrid", "spec_k")
HEADS = {"chunk": "c", "hybrid": "", "spec_k": ""}
NAMES = {"chunk": "chunk", "hybrid": "hybrid", "spec_k": "k"}

Style = Verdict | str
Line = list[tuple[str, Style]]
"""Pieces of text with a verdict, or one of `title`, `head`, `label`, and the empty style for blanks."""

Key = tuple[AxisValue, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One backend on one arch: a verdict for each column, None where no such cell was selected."""

    labels: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    marks: tuple[Verdict | None, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Every cell of one load (and of one value of every further axis)."""

    title: str
    axes: tuple[str, ...]
    columns: tuple[Key, ...]
    rows: tuple[Row, ...]


def blocks(results: Sequence[CellResult]) -> tuple[Block, ...]:
    """One block for each combination of the axes that are neither rows nor columns.

    A row without a single supported cell is left out: the reasons are counted elsewhere.
    """
    axes = domain(results)
    across = tuple(axis for axis in COLUMNS if axis in axes)
    down = tuple(axis for axis in ROWS if axis in axes)
    apart = tuple(axis for axis in axes if axis not in across + down and not _silent(axis, axes[axis]))
    cells = {_key(result, apart) + _key(result, down) + _key(result, across): result for result in results}
    columns = _ordered(results, axes, across)
    return tuple(
        Block(title=_title(apart, part), axes=across, columns=columns, rows=rows)
        for part in _ordered(results, axes, apart)
        if (rows := tuple(_rows(cells, part, _ordered(results, axes, down), columns)))
    )


def _silent(axis: str, values: Sequence[AxisValue]) -> bool:
    """Whether an axis has nothing to say: it has one value, which ids leave out too."""
    return len(values) == 1 and not in_id(axis, values[0])


def _title(axes: Sequence[str], part: Key) -> str:
    return (
        ", ".join(f"{one_line(axis, 24)} {one_line(str(value), 24)}" for axis, value in zip(axes, part, strict=True))
        or "all cells"
    )


def _key(result: CellResult, axes: Sequence[str]) -> Key:
    return tuple(result.axes[axis] for axis in axes)


def _ordered(results: Sequence[CellResult], axes: Domain, names: Sequence[str]) -> tuple[Key, ...]:
    """The combinations that occur, in the order of the axes."""
    position = {name: {value: i for i, value in enumerate(axes[name])} for name in names}
    return tuple(
        sorted(
            {_key(result, names) for result in results},
            key=lambda key: [position[name][value] for name, value in zip(names, key, strict=True)],
        )
    )


def _rows(cells: dict[Key, CellResult], part: Key, down: Sequence[Key], columns: Sequence[Key]) -> Iterator[Row]:
    for row in down:
        found = [cells.get(part + row + column) for column in columns]
        if any(result and result.verdict is not Verdict.UNSUPPORTED for result in found):
            yield Row(
                labels=tuple(one_line(str(value), 24) for value in row),
                evidence=tuple(evidence_of(result for result in found if result)),
                marks=tuple(result.verdict if result else None for result in found),
            )


def evidence_mark(evidence: Sequence[Evidence]) -> str:
    """`e` for emulated; several letters where one row mixes."""
    return "".join(one.value[0] for one in evidence)


def lay_out(block: Block, width: int) -> list[Line]:
    """The block in lines no wider than `width`, as far as one outermost column group fits: else groups go below."""
    labels = _label_widths(block)
    left = sum(labels) + len(labels)
    parts: list[list[int]] = []
    for group in _groups(block):
        if parts and left + _Header(block, parts[-1] + group).width <= width:
            parts[-1] += group
        else:
            parts.append(list(group))
    lines: list[Line] = [[(block.title, "title")]]
    for part in parts:
        lines += _table(block, part, labels)
    return lines


def _label_widths(block: Block) -> list[int]:
    rows = [(*row.labels, evidence_mark(row.evidence)) for row in block.rows]
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _groups(block: Block) -> list[list[int]]:
    """Column numbers that share the outermost value."""
    found: dict[Key, list[int]] = {}
    for number, column in enumerate(block.columns):
        found.setdefault(column[:1], []).append(number)
    return list(found.values())


class _Header:
    """Where each column stands and what is written above it: one line for each axis, outermost first."""

    def __init__(self, block: Block, numbers: Sequence[int]) -> None:
        self.place: dict[int, int] = {}
        self.lines = [""] * len(block.axes)
        columns = {number: block.columns[number] for number in numbers}
        names = [
            [HEADS[axis] + one_line(str(column[level]), 24) for column in columns.values()]
            for level, axis in enumerate(block.axes)
        ]
        tight = bool(names) and all(len(name) == 1 for name in names[-1])
        at, previous = 0, None
        for i, (number, column) in enumerate(columns.items()):
            changed = next(
                (level for level, value in enumerate(column) if previous is None or previous[level] != value), 0
            )
            if previous is not None:
                gap = len(column) - 1 - changed if tight else len(column) - changed
                at = max(
                    at + gap, *(len(self.lines[level]) + 1 for level in range(changed, max(len(column) - 1, 0))), 0
                )
            for level in range(changed, len(column)):
                self.lines[level] = self.lines[level].ljust(at) + names[level][i]
            self.place[number] = at
            at += len(names[-1][i]) if names else 1
            previous = column
        self.width = max([at, *map(len, self.lines)])


def _table(block: Block, numbers: Sequence[int], labels: Sequence[int]) -> Iterator[Line]:
    header = _Header(block, numbers)
    left = sum(labels) + len(labels)
    for axis, text in zip(block.axes, header.lines, strict=True):
        yield [(f"{NAMES[axis]} ".rjust(left), "label"), (text, "head")]
    above: tuple[str, ...] = ()
    for row in block.rows:
        same = bool(above) and row.labels[0] == above[0] and len(row.labels) > 1
        shown = ("" if same else row.labels[0], *row.labels[1:]) if row.labels else ()
        words = [*shown, evidence_mark(row.evidence)]
        line: Line = [("".join(f"{word:<{wide}} " for word, wide in zip(words, labels, strict=True)), "label")]
        at = 0
        for number in numbers:
            mark, place = row.marks[number], header.place[number]
            line += [(" " * (place - at), ""), (GLYPHS[mark], mark) if mark else (" ", "")]
            at = place + 1
        yield line
        above = row.labels


def as_text(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def legend(drawn: Sequence[Block]) -> Line:
    """The glyphs and evidence letters that occur in these blocks, each with its word."""
    rows = [row for block in drawn for row in block.rows]
    marks = {mark for row in rows for mark in row.marks}
    line: Line = []
    for verdict in GLYPHS:
        if verdict in marks:
            line += [("   " if line else "", ""), (GLYPHS[verdict], verdict), (f" {verdict}", "label")]
    for evidence in Evidence:
        if any(evidence in row.evidence for row in rows):
            line += [("   ", ""), (evidence_mark([evidence]), "head"), (f" {evidence}", "label")]
    return line
