"""What each attempt at a cell printed, as files below the run directory."""

from io import FileIO
from pathlib import Path

from runner.axes import ID
from runner.errors import MachineError

LIMIT = 1024 * 1024 + 64 * 1024
"""Characters kept of one attempt: the worker's own limit of 1 MiB and its note, enforced against a worker that lies."""


class LogStore:
    """Opens `cells/<cell id>/attempt-<n>.log`; the id is one that we made, never one that a worker sent."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self, cell_id: str, attempt: int) -> "CellLog":
        if not ID.fullmatch(cell_id):
            raise ValueError(f"{cell_id!r} is no cell id")
        return CellLog(self._directory, f"cells/{cell_id}/attempt-{attempt}.log")


class CellLog:
    """One attempt's log; there is no file before there is something to write."""

    def __init__(self, directory: Path, place: str) -> None:
        self._path, self._place = directory / place, place
        self._file: FileIO | None = None
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
                # Without a buffer: what could not be written is not tried again when the file is closed.
                self._file = self._path.open("wb", buffering=0)
            data = memoryview(text.encode("utf-8", "replace"))
            while data:  # on a disk that is nearly full a part may be written
                data = data[self._file.write(data) :]
        except OSError as error:
            raise self._trouble(error) from error

    def close(self) -> None:
        try:
            if self._file:
                self._file.close()
        except OSError as error:  # some network file systems tell only now that there is no room
            raise self._trouble(error) from error

    def _trouble(self, error: OSError) -> MachineError:
        return MachineError(f"{self._path}: cannot write the log: {error.strerror}; free some space")
