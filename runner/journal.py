"""events.jsonl, append-only: what happened in a run, in order. With plan.json it is all that reports need."""

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, get_args

from pydantic import TypeAdapter, ValidationError

from runner import output
from runner.errors import MachineError
from runner.model import Event

_KINDS: dict[str, type[Event]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in get_args(Event)
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_LINE: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_ADAPTERS: dict[type[Event], TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in _NAMES}

SYNC_S = 1.0
FULL = (errno.ENOSPC, errno.EDQUOT)


class Journal:
    """Writes one line for each event and hands it to the system at once, so that a killed run loses none.

    The system is made to write it to the disk once a second: a power cut may cost what came after, a crash of ours not.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
            if (size := path.stat().st_size) and (whole := _whole(path)) < size:  # killed, or no space was left
                self._file.truncate(whole)
        except OSError as error:
            raise self._trouble(error) from error
        self._synced = time.monotonic()

    def append(self, event: Event) -> None:
        kind = type(event)
        head = {"event": _NAMES[kind], "at": datetime.now(UTC).isoformat(timespec="milliseconds")}
        body = _ADAPTERS[kind].dump_python(event, mode="json")
        line = memoryview(_LINE.dump_json({**head, **body}) + b"\n")
        try:
            while line:  # one write: a reader never sees half of it unless the disk is nearly full
                line = line[self._file.write(line) :]
            if time.monotonic() - self._synced > SYNC_S:
                os.fdatasync(self._file.fileno())
                self._synced = time.monotonic()
        except OSError as error:
            raise self._trouble(error) from error

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:  # some network file systems tell only now that there is no room
            raise self._trouble(error) from error

    def _trouble(self, error: OSError) -> MachineError:
        remedy = "free some space" if error.errno in FULL else "a run needs a directory that can be written"
        return MachineError(f"{self._path}: cannot write the journal: {error.strerror}; {remedy}")

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


def read(path: Path, tell: Callable[[str], None] = output.note) -> Iterator[Event]:
    """All events, one after the other; MachineError where the file is no journal.

    A torn last line (the run was killed, or is writing) is left out, as are kinds of a later version. Damage, such as
    zeros after a power cut, costs the entries that it hit: `tell` hears of it once, at the end.
    """
    damaged: list[int] = []
    readable = zeros = False
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    continue
                whole, events = _entries(line)
                readable |= bool(events)
                zeros |= b"\0" in line
                if not whole:
                    damaged.append(number)
                yield from filter(None, events)
    except OSError as error:
        raise MachineError(f"{path}: cannot read the journal: {error.strerror}") from error
    if damaged and not readable and not zeros:
        raise MachineError(
            f"{path}:{damaged[0]}: this is no entry of a journal; the file was changed or written by another version. "
            "Run the cells again."
        )
    if damaged:
        tell(
            f"{path}: {len(damaged)} damaged {'line' if len(damaged) == 1 else 'lines'}, the first is line "
            f"{damaged[0]}: what they said is lost. `runner resume {path.parent}` runs the cells again that have no "
            "result now"
        )


def _entries(line: bytes) -> tuple[bool, list[Event | None]]:
    """Whether a line is one whole entry; and what is left in it, None for a kind of a later version.

    JSON holds no zero byte: what stands whole before or behind zeros is an entry that they did not hit.
    """
    found: list[Event | None] = []
    pieces = [piece for piece in re.split(rb"\0+", line) if piece.strip()]
    for piece in pieces:
        with contextlib.suppress(ValidationError, KeyError):
            found.append(_event(piece))
    return len(found) == len(pieces) == 1 and b"\0" not in line, found


def _event(line: bytes) -> Event | None:
    entry = _LINE.validate_json(line)
    kind = _KINDS.get(entry.pop("event"))
    entry.pop("at")
    return _ADAPTERS[kind].validate_python(entry) if kind else None
