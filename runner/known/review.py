"""A change of the known issues as a diff of matrix.yaml, written only where somebody asks for it."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from runner import matrix, output, results
from runner.errors import MatrixError, UsageError
from runner.known import judging, writing
from runner.known.entries import Change, inside, region
from runner.matrix import KnownIssue, Matrix
from runner.model import CellResult, Fault
from runner.reports.text import count

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class File:
    """matrix.yaml as it was read: what it holds, its text, and its bytes."""

    path: Path
    chart: Matrix
    text: str
    raw: bytes


def opened(path: Path, *, idle: bool = False) -> File:
    """Read a matrix to change it; `idle` lets known issues be that match no cell."""
    text = matrix.text_of(path)
    return File(path, matrix.read(text, str(path), idle=idle), text, path.read_bytes())


def present(file: File, change: Change, rows: Sequence[CellResult], *, today: date, write: bool) -> None:
    """Print the diff, and say what it does to the verdicts of a run; write the file where that is wanted.

    The new text is read again before anything else is done with it, and must say what was meant.
    """
    for note in change.notes:
        output.note(note)
    if not change:
        output.note(f"{file.path}: nothing to change")
        return
    text = writing.rewritten(file.text, change, file.chart)
    try:
        chart = matrix.read(text, str(file.path))
    except MatrixError as error:
        raise UsageError(f"with this change the matrix would not be taken, so nothing is written:\n{error}") from None
    _check(chart, change, file.chart)
    output.emit(diff(file.text, text, file.path).rstrip("\n"))
    output.note(_tally(change))
    mine = inside(rows, chart)
    if mine:
        before, after = (
            sum(row.verdict.fault is Fault.PRODUCT for row in judging.judged(mine, known, today))
            for known in (file.chart.known, chart.known)
        )
        output.note(f"the run by the new entries: {count(after, 'unexpected cell')}, and {before:,} before")
    if write:
        _write(file, text)
        output.note(f"{file.path}: written")
    else:
        output.note(f"{file.path}: not written: give --write")


def diff(old: str, new: str, path: Path) -> str:
    """A unified diff, as `git apply` and `patch` take it."""
    name = path.as_posix()
    names = (name, name) if path.is_absolute() else (f"a/{name}", f"b/{name}")
    lines = difflib.unified_diff(_lines(old), _lines(new), *names)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """By line feeds alone: the other characters that Python takes for ends of lines are none for `patch`."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _tally(change: Change) -> str:
    taken = sum(not entries for entries in change.fitted.values())
    words = {"added": len(change.added), "changed": len(change.fitted) - taken, "taken out": taken}
    said = [f"{number:,} {word}" for word, number in words.items() if number]
    return f"known issues: {', '.join(said)}"


def _check(chart: Matrix, change: Change, before: Matrix) -> None:
    """What stands in the new text is what the change says; anything else is our fault."""
    meant = change.of(before.known)
    if [_said(entry, chart) for entry in chart.known] != [_said(entry, chart) for entry in meant]:
        raise AssertionError("the known issues that were written are not those that were meant")


def _said(entry: KnownIssue, chart: Matrix) -> tuple[object, ...]:
    words = (entry.state, entry.buffer, entry.how, entry.issue, entry.because, entry.owner, entry.until, entry.flaky)
    return (region(entry, chart), *words)


def _write(file: File, text: str) -> None:
    """UsageError where somebody else has written meanwhile. A link stays one, and so does the mode of the file."""
    path = file.path.resolve()
    if path.read_bytes() != file.raw:
        raise UsageError(f"{file.path}: has changed meanwhile: nothing was written, run the command again")
    mode = path.stat().st_mode
    mark = BOM.decode() if file.raw.startswith(BOM) else ""
    results.write_atomically(path, mark + text, remedy="nothing was changed; see whether its folder can be written to")
    path.chmod(mode)
