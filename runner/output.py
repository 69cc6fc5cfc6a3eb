"""Data on standard output and remarks on standard error, quiet where the reader has gone."""

import os
import sys
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from runner import muted

WIDEST = 10_000
"""Columns of the widest table."""
READABLE = 40
"""Columns that a table has beside those of its longest words, however narrow the terminal is."""


def emit(text: str) -> None:
    """Print data; a pipe that was closed, as by `| head`, is no trouble."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Or the interpreter would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def emit_json(text: str) -> None:
    """Print JSON: in a step of GitHub Actions spelt so that no string in it is a command, with the same meaning."""
    emit(muted.harmless_json(text) if muted.here() else text)


def command(line: str) -> None:
    """Print what is meant to be a command to GitHub."""
    stream = sys.stdout
    if isinstance(stream, muted.Muted):
        stream.finish()
        stream = stream.stream
    print(line, file=stream, flush=True)


def emit_rich(renderable: RenderableType) -> None:
    """The same for a table; rich leaves colours out in a pipe and under NO_COLOR.

    No word is broken, so that an id or a path can be copied: a table is wider than the terminal where one is too long.
    """
    width = Console(file=sys.stdout).width
    for table in _tables(renderable):
        width = max(width, _keep_words(table, width))
    console = Console(file=sys.stdout, width=width)
    with console.capture() as captured:
        console.print(renderable)
    emit(captured.get().rstrip("\n"))


def _tables(renderable: RenderableType) -> Iterator[Table]:
    if isinstance(renderable, Table):
        yield renderable
    if isinstance(renderable, Group):
        for one in renderable.renderables:
            yield from _tables(one)


def _keep_words(table: Table, width: int) -> int:
    """Make each column as wide as its longest word, and share out what is left; gives the width of the table."""
    texts = [[str(column.header), *map(_plain, column.cells)] for column in table.columns]
    least = [max((cell_len(word) for text in one for word in text.split()), default=0) for one in texts]
    most = [max(cell_len(line) for text in one for line in text.splitlines() or [""]) for one in texts]
    around = Measurement.get(Console(), Console().options.update(width=WIDEST), table).maximum - sum(most)
    left = max(width - around - sum(least), min(READABLE, sum(most) - sum(least)))
    widths = list(least)
    for n, i in enumerate(sorted(range(len(widths)), key=lambda i: most[i] - least[i])):
        more = min(most[i] - least[i], left // (len(widths) - n))
        widths[i], left = least[i] + more, left - more
    for column, found in zip(table.columns, widths, strict=True):
        column.width = found
    return sum(widths) + around


def _plain(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain


def note(text: str) -> None:
    """Say something beside the data."""
    print(text, file=sys.stderr)
