"""Nothing that is printed in a step of GitHub Actions is a command to GitHub, but for what is meant to be one.

What the runner prints has words of patches, cells and machines in it. GitHub reads commands from a step's output:
`::name …::` behind blanks at the start of a line, and `##[name …]` anywhere in one (actions/runner 2.336.0,
ActionCommand.cs, `TryParseV2` and `TryParse`).
"""

import io
import os
import re
from typing import IO, Any

_OPENING = "##["
_COLONS = re.compile(r"(^|[\r\n])(\s*):(?=:)")


def here() -> bool:
    """Whether this is a step of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def harmless(text: str) -> str:
    """The text with a blank in what would be a command; it begins a line."""
    return _COLONS.sub(r"\1\2: ", text.replace(_OPENING, "# #["))


def harmless_json(text: str) -> str:
    """JSON that means the same, and in which no string has what begins a command."""
    return text.replace(_OPENING, "#\\u0023[")


class Muted(io.TextIOBase):
    """A stream that writes harmless text to another, however the text comes in pieces.

    It keeps back what may become a command: the blanks and colons that begin a line, and `##` at the end of a piece.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self.kept = ""
        self.inside = False
        """Whether what comes next is behind something in its line."""

    def write(self, text: str) -> int:
        whole = self.kept + text
        self.kept = _undecided(whole, inside=self.inside)
        self._put(whole[: len(whole) - len(self.kept)])
        return len(text)

    def flush(self) -> None:
        """All but a colon or a hash that may still become a command."""
        if not self.kept.strip():
            self._put(self.kept)
            self.kept = ""
        self.stream.flush()

    def finish(self) -> None:
        """Nothing comes any more: write what was kept back."""
        self._put(self.kept)
        self.kept = ""
        self.stream.flush()

    def _put(self, text: str) -> None:
        if not text:
            return
        mark = "x" if self.inside else ""  # stands for what is in the line already
        self.stream.write(harmless(mark + text)[len(mark) :])
        last = re.split(r"[\r\n]", mark + text)[-1]
        self.inside = bool(last.strip())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)  # encoding, buffer, reconfigure and the like

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return self.stream.isatty()

    def writable(self) -> bool:
        return True


def _undecided(text: str, *, inside: bool) -> str:
    """The end of a text that can be judged only by what follows it."""
    last = re.split(r"[\r\n]", text)[-1]
    if not (inside and last == text) and re.fullmatch(r"\s*:?", last):
        return last
    found = re.search(r"##?$", text)
    return found[0] if found else ""
