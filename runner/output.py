"""Data on standard output and remarks on standard error, quiet where the reader has gone."""

import os
import sys

from rich.console import Console, RenderableType

from runner import muted


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
    """The same for a table; rich leaves colours out in a pipe and under NO_COLOR."""
    console = Console(file=sys.stdout)
    with console.capture() as captured:
        console.print(renderable)
    emit(captured.get().rstrip("\n"))


def note(text: str) -> None:
    """Say something beside the data."""
    print(text, file=sys.stderr)
