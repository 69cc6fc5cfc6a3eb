"""events.jsonl, append-only: what happened in a run, in order. With plan.json it is all that reports need."""

import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, get_args

from pydantic import TypeAdapter, ValidationError

from runner.errors import MachineError
from runner.model import Event

_KINDS: dict[str, type[Event]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in get_args(Event)
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_LINE: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_ADAPTERS: dict[type[Event], TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in _NAMES}


SYNC_S = 1.0


class Journal:
    """Writes one line for each event and hands it to the system at once, so that a killed run loses none.

    The system is made to write it to the disk once a second: a power cut may cost what came after, a crash of ours not.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._synced = time.monotonic()
        if (size := path.stat().st_size) and (whole := _whole(path)) < size:  # killed, or no space was left
            self._file.truncate(whole)

    def append(self, event: Event) -> None:
        kind = type(event)
        head = {"event": _NAMES[kind], "at": datetime.now(UTC).isoformat(timespec="milliseconds")}
        body = _ADAPTERS[kind].dump_python(event, mode="json")
        line = _LINE.dump_json({**head, **body}) + b"\n"
        try:
            self._file.write(line)  # one write: a reader never sees half of it unless the disk is full
            if time.monotonic() - self._synced > SYNC_S:
                os.fdatasync(self._file.fileno())
                self._synced = time.monotonic()
        except OSError as error:
            raise MachineError(f"{self._path}: cannot write the journal: {error.strerror}; free some space") from error

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _whole(path: Path) -> int:
    """Bytes up to the end of the last line that is one: a power cut may leave a torn one, or zeros."""
    data = path.read_bytes().rstrip(b"\0")
    return data.rfind(b"\n") + 1


def read(path: Path) -> Iterator[Event]:
    """All events, one after the other; MachineError where the file is no journal.

    A torn last line (the run was killed, or is writing) is left out, as are kinds of a later version.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n") and (event := _event(line, path, number)):
                    yield event
    except OSError as error:
        raise MachineError(f"{path}: cannot read the journal: {error.strerror}") from error


def _event(line: bytes, path: Path, number: int) -> Event | None:
    try:
        entry = _LINE.validate_json(line)
        kind = _KINDS.get(entry.pop("event"))
        entry.pop("at")
        return _ADAPTERS[kind].validate_python(entry) if kind else None
    except (ValidationError, KeyError) as error:
        raise MachineError(
            f"{path}:{number}: this is no entry of a journal; the file was changed or written by another version. "
            "Run the cells again."
        ) from error
