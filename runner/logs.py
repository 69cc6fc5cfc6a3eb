"""What each attempt at a cell printed, as files below the run directory."""

import re
from pathlib import Path
from typing import TextIO

from runner.errors import MachineError

LIMIT = 1024 * 1024 + 64 * 1024
"""Characters kept of one attempt: the worker's own limit of 1 MiB and its note, enforced against a worker that lies."""

_SAFE = re.compile(r"[a-z0-9_.]+(-[a-z0-9_.]+)*")


class LogStore:
    """Opens `cells/<cell id>/attempt-<n>.log`; the id is one that we made, never one that a worker sent."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self, cell_id: str, attempt: int) -> "CellLog":
        if not _SAFE.fullmatch(cell_id) or not cell_id.strip("."):
            raise ValueError(f"{cell_id!r} is no cell id")
        return CellLog(self._directory, f"cells/{cell_id}/attempt-{attempt}.log")


class CellLog:
    """One attempt's log; there is no file before there is something to write."""

    def __init__(self, directory: Path, place: str) -> None:
        self._path, self._place = directory / place, place
        self._file: TextIO | None = None
        self._left = LIMIT

    @property
    def place(self) -> str:
        """Relative to the run directory; empty where nothing was written."""
        return self._place if self._file else ""

    def write(self, text: str) -> None:
        text = text[: self._left]
        if not text:
            return
        self._left -= len(text)
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("w", encoding="utf-8", errors="replace")
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            raise MachineError(f"{self._path}: cannot write the log: {error.strerror}; free some space") from error

    def close(self) -> None:
        if self._file:
            self._file.close()
