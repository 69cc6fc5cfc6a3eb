"""The step of a workflow that this process is, as its variables name it."""

import os
from pathlib import Path

from runner.errors import UsageError


def append(variable: str, text: str) -> bool:
    """Add to the file that a variable of a step names; false where there is none."""
    if not (path := os.environ.get(variable)):
        return False
    with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return True


def event() -> str:
    """What happened, as GitHub writes it; UsageError outside of a step."""
    path = Path(os.environ.get("GITHUB_EVENT_PATH") or "")
    if not path.is_file():
        raise UsageError("GITHUB_EVENT_PATH is not set: this command is for a step of GitHub Actions")
    return path.read_text(errors="replace")


def number(variable: str) -> int:
    """UsageError where the variable holds none."""
    text = os.environ.get(variable, "")
    if not text.isdecimal():
        raise UsageError(f"{variable} is not set to a number: this command is for a step of GitHub Actions")
    return int(text)
