"""Brings run directories into the history: a run adds itself at its end, a question looks for those that did not."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import yaml

from runner import results, rundir
from runner.errors import RunnerError
from runner.history.store import History, RunEntry, opened
from runner.model import CellResult

FILE = "history.sqlite"
VARIABLE = "ATTNMATRIX_HISTORY"
"""Names the file of the history, for runs wherever their directories are."""
BISECTS = "bisect"
"""The folder, beside them, of the runs of single cells that bisects make: in the history, and in no trend."""
SOURCES = (results.NAME, "events.jsonl")
"""What a run's results are read from: the second where the run was killed before it wrote the first."""

Read = Callable[[Path], Sequence[CellResult]]
"""The results of a run directory."""
Say = Callable[[str], None]


def default_file() -> Path:
    return Path(os.environ.get(VARIABLE) or rundir.RUNS / FILE)


def remember(run: Path, rows: Sequence[CellResult], say: Say) -> None:
    """Add a run that has just ended; whatever prevents it is told and fails no run.

    A run under runs/ goes into the history there; one elsewhere only where a variable names the file.
    """
    if VARIABLE not in os.environ and run.absolute().parent != rundir.RUNS.absolute():
        return
    try:
        with opened(default_file()) as history:
            history.add(entry_of(run), rows)
    except (RunnerError, OSError) as error:
        say(f"the history was not updated: {error}")


def add(history: History, run: Path, read: Read) -> int:
    """Add one run directory, wherever it is; gives how many cells it has. UsageError where it is none."""
    rows = read(run)
    history.add(entry_of(run), rows)
    return len(rows)


def catch_up(history: History, folder: Path, read: Read, say: Say) -> None:
    """Add the runs in a folder that are not in the history, or have changed since; one that cannot be read is told.

    Runs whose directory is gone stay.
    """
    there = {entry.path: entry for entry in history.runs()}
    seen = set()
    for run in sorted([*folder.glob("*/"), *folder.glob(f"{BISECTS}/*/")]):
        if run.is_symlink() or not any((run / name).is_file() for name in SOURCES):
            continue
        try:
            kept = there.get(str(run.absolute()))
            entry = kept if kept and kept.stamp == stamp_of(run) else entry_of(run)
            if entry.run_id not in seen and entry is not kept:  # a second directory with the id is a copy
                history.add(entry, read(run))
            seen.add(entry.run_id)
        except (RunnerError, OSError) as error:
            say(f"left out of the history: {error}")


def rebuild(history: History, folder: Path, read: Read, say: Say) -> None:
    """Make the history anew from the folder, and from the directories elsewhere that it knows of."""
    inside = {folder.absolute(), folder.absolute() / BISECTS}
    elsewhere = [Path(entry.path) for entry in history.runs() if Path(entry.path).parent not in inside]
    history.forget()
    catch_up(history, folder, read, say)
    for run in elsewhere:
        try:
            add(history, run, read)
        except (RunnerError, OSError) as error:
            say(f"left out of the history: {error}")


def entry_of(run: Path) -> RunEntry:
    """What a run directory says of its run, but for the results."""
    asked = rundir.asked(run) if (run / rundir.ASKED).is_file() else None
    run_id = asked.run_id if asked else run.resolve().name
    return RunEntry(
        run_id=run_id,
        path=str(run.absolute()),
        started_at=_started_at(run_id) or _utc(_source(run).stat().st_mtime),
        loads=loads_digest(run / "matrix.yaml"),
        seed=asked.options.seed if asked else 0,
        stamp=stamp_of(run),
    )


def stamp_of(run: Path) -> str:
    """Which file a run's results are read from, when that was written and how large it is."""
    source = _source(run)
    about = source.stat()
    return f"{source.name} {about.st_mtime_ns} {about.st_size}"


def _source(run: Path) -> Path:
    return next((run / name for name in SOURCES if (run / name).is_file()), run / SOURCES[0])


def loads_digest(matrix: Path) -> str:
    """Sixteen hex digits over what a matrix says of its loads; empty where it cannot be read."""
    try:
        loads = yaml.load(matrix.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["loads"]  # noqa: S506 - both are safe
        return hashlib.sha256(json.dumps(loads, sort_keys=True).encode()).hexdigest()[:16]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return ""


def _started_at(run_id: str) -> str:
    """As ISO 8601, from an id such as 20261129T150400Z-3f9a; empty where it is another one."""
    found = re.match(r"\d{8}T\d{6}Z", run_id)
    try:
        return datetime.strptime(found[0], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).isoformat() if found else ""
    except ValueError:
        return ""


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
