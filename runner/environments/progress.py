"""Says on standard error how a build is going: a spinner on a terminal, lines in a pipe."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.markup import escape

Say = Callable[[str], None]


@contextlib.contextmanager
def shown() -> Iterator[Say]:
    """A `say` for the length of a build."""
    console = Console(stderr=True)
    started = time.monotonic()
    if not console.is_terminal:
        yield lambda text: print(f"[{time.monotonic() - started:4.0f} s] {text}", file=sys.stderr, flush=True)
        return
    with console.status("") as status:
        yield lambda text: status.update(escape(text))


def size(count: float) -> str:
    """Bytes for people: `3.4 GB`."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
