"""The one console: no markup and no emoji codes, because most of what it prints comes from a process under test."""

import os
import sys
from typing import IO

from rich.console import Console


def make(file: IO[str] | None = None) -> Console:
    """Colour on a terminal only, and never under NO_COLOR or TERM=dumb (rich sees to that)."""
    stream = file if file is not None else sys.stdout
    if reconfigure := getattr(stream, "reconfigure", None):
        reconfigure(errors="backslashreplace")  # a stream of ASCII or latin-1 must not end a run
    return Console(file=file, highlight=False, markup=False, emoji=False)


def live(console: Console) -> bool:
    """Whether a line can be redrawn: not in a pipe, not on a dumb terminal, not in CI, where logs are kept."""
    return console.is_terminal and not console.is_dumb_terminal and not os.environ.get("CI")
