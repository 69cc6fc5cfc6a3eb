"""Who holds a lock, in words, in a file beside it: the lock file itself is emptied by whoever tries to take it."""

import os
import time
from pathlib import Path

PATIENCE_S = 1.0
"""How long a holder may take from its lock to its words."""
POLL_S = 0.02


def sign(path: Path, where: str = "") -> None:
    """Say that this process is the holder. Nobody reads half of it. OSError where it cannot be written."""
    half = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        half.write_text(f"process {os.getpid()}{where}")
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def who(path: Path, patience_s: float = PATIENCE_S) -> str:
    """The holder's words, or `another process` where there are none in time."""
    until = time.monotonic() + patience_s
    while True:
        try:
            if words := path.read_text().strip():
                return words
        except OSError:
            pass
        if time.monotonic() >= until:
            return "another process"
        time.sleep(POLL_S)
