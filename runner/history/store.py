"""The history: an SQLite file that indexes run directories. It holds nothing that they do not, and can be deleted.

    runs          one row per run: id, directory, when it began, seed, and the stamp of the file it was read from
    totals        how many cells of a run ended with which verdict, by release and evidence; these add up to all planned
    cells         ids and axes
    environments  the `environment` of results, each once
    results       one row per cell that was given a chance: without those that a rule excludes, and those not reached

A run is added in one transaction: whoever is killed meanwhile leaves all of it or none. WAL: readers do not wait.
"""

import contextlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.errors import MachineError, UsageError
from runner.history.records import Record, Shortage
from runner.model import CellResult, Evidence, State, Verdict

APPLICATION, FORMAT = 0x61746D78, 1
"""Which file this is (`atmx`), and how it is laid out: one of an older layout is made anew."""
PATIENCE_S = 30.0
REASON = 300
"""Characters kept of a reason."""
_UNSEEN = frozenset({State.UNSUPPORTED, State.NOT_RUN})

_TABLES = """
CREATE TABLE runs (run INTEGER PRIMARY KEY, run_id TEXT UNIQUE NOT NULL, path TEXT NOT NULL, started_at TEXT NOT NULL,
  loads TEXT NOT NULL, seed INTEGER NOT NULL, stamp TEXT NOT NULL);
CREATE TABLE totals (run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE, vllm TEXT NOT NULL,
  evidence TEXT NOT NULL, verdict TEXT NOT NULL, cells INTEGER NOT NULL,
  PRIMARY KEY (run, vllm, evidence, verdict)) WITHOUT ROWID;
CREATE TABLE cells (cell INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, axes TEXT NOT NULL);
CREATE TABLE environments (environment INTEGER PRIMARY KEY, facts TEXT UNIQUE NOT NULL);
CREATE TABLE results (run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE, cell INTEGER NOT NULL REFERENCES cells,
  state TEXT NOT NULL, verdict TEXT NOT NULL, evidence TEXT NOT NULL, duration_s REAL NOT NULL, ended_at TEXT NOT NULL,
  environment INTEGER NOT NULL REFERENCES environments, resolved TEXT NOT NULL, overflow TEXT NOT NULL,
  reason TEXT NOT NULL, reruns TEXT NOT NULL, PRIMARY KEY (run, cell)) WITHOUT ROWID;
CREATE INDEX results_of_a_cell ON results (cell);
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEntry:
    """A run as the history knows it."""

    run_id: str
    path: str
    started_at: str
    loads: str
    seed: int
    stamp: str
    """Time and size of the file that was read: one that changed is read again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Totals:
    """How many cells of a run ended so."""

    run_id: str
    started_at: str
    vllm: str
    evidence: Evidence
    verdict: Verdict
    cells: int


class History:
    """The open file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = connection

    def add(self, entry: RunEntry, rows: Sequence[CellResult]) -> None:
        """The run and its results, in the place of what was there of it."""
        with self._transaction():
            self._sql.execute("DELETE FROM runs WHERE run_id = ?", [entry.run_id])
            run = self._sql.execute(
                "INSERT INTO runs (run_id, path, started_at, loads, seed, stamp) VALUES (?, ?, ?, ?, ?, ?)",
                [entry.run_id, entry.path, entry.started_at, entry.loads, entry.seed, entry.stamp],
            ).lastrowid
            counts = Counter((str(row.axes.get("vllm", "")), row.evidence.value, row.verdict.value) for row in rows)
            self._sql.executemany(
                "INSERT INTO totals VALUES (?, ?, ?, ?, ?)", [(run, *key, n) for key, n in counts.items()]
            )
            self._sql.executemany(
                "INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    self._values(run, entry, row)
                    for row in {row.id: row for row in rows if row.state not in _UNSEEN}.values()
                ],
            )

    def _values(self, run: int | None, entry: RunEntry, row: CellResult) -> tuple[object, ...]:
        return (
            run,
            self._number("cells", "cell", {"id": row.id, "axes": _json(row.axes)}),
            row.state.value,
            row.verdict.value,
            row.evidence.value,
            row.duration_s,
            row.ended_at or entry.started_at,
            self._number("environments", "environment", {"facts": _json(row.environment)}),
            _json(row.resolved),
            _json([[one.buffer, one.how.value, one.required, one.allocated] for one in row.overflow]),
            row.reason[:REASON],
            _json([state.value for state in row.reruns]),
        )

    def _number(self, table: str, column: str, values: Mapping[str, str]) -> int:
        """Of the row of a table with the first of these values, which is made where it is not there."""
        key = next(iter(values))
        marks = ", ".join("?" * len(values))
        self._sql.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks}) ON CONFLICT DO NOTHING",  # noqa: S608 - our words
            list(values.values()),
        )
        (number,) = self._sql.execute(f"SELECT {column} FROM {table} WHERE {key} = ?", [values[key]]).fetchone()  # noqa: S608 - our words
        return int(number)

    def forget(self) -> None:
        """Everything."""
        with self._transaction():
            for table in ("runs", "cells", "environments"):  # totals and results go with their runs
                self._sql.execute(f"DELETE FROM {table}")  # noqa: S608 - our words

    def runs(self) -> list[RunEntry]:
        """Oldest first."""
        found = self._sql.execute(
            "SELECT run_id, path, started_at, loads, seed, stamp FROM runs ORDER BY started_at, run_id"
        )
        return [
            RunEntry(run_id=i, path=p, started_at=at, loads=loads, seed=seed, stamp=stamp)
            for i, p, at, loads, seed, stamp in found
        ]

    def totals(self) -> list[Totals]:
        """Of every run, oldest first."""
        found = self._sql.execute(
            "SELECT run_id, started_at, vllm, evidence, verdict, cells FROM totals JOIN runs USING (run) "
            "ORDER BY started_at, run_id, vllm, evidence, verdict"
        )
        return [
            Totals(run_id=i, started_at=at, vllm=v, evidence=Evidence(e), verdict=Verdict(word), cells=n)
            for i, at, v, e, word, n in found
        ]

    def axes(self) -> dict[str, dict[str, str | int]]:
        """Of every cell that ever had a result, by its id."""
        return {id_: json.loads(axes) for id_, axes in self._sql.execute("SELECT id, axes FROM cells ORDER BY id")}

    def records(self, cells: Sequence[str] | None = None, runs: Sequence[str] | None = None) -> list[Record]:
        """The results of these cells and runs (of all, where it is not said), oldest first."""
        found = self._sql.execute(
            "SELECT run_id, id, axes, state, verdict, evidence, duration_s, ended_at, facts, resolved, overflow, "
            "reason, reruns, loads, seed FROM results JOIN runs USING (run) JOIN cells USING (cell) "
            "JOIN environments USING (environment) WHERE (?1 IS NULL OR id IN (SELECT value FROM json_each(?1))) "
            "AND (?2 IS NULL OR run_id IN (SELECT value FROM json_each(?2))) ORDER BY ended_at, run_id, id",
            [None if cells is None else json.dumps(list(cells)), None if runs is None else json.dumps(list(runs))],
        )
        return [_record(row) for row in found]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; takes the place of the one writer at once, so that it cannot fail halfway for want of it."""
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._sql.execute("ROLLBACK")
            raise
        self._sql.execute("COMMIT")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[History]:
    """The history in this file, which is made where it is not there; MachineError where it cannot be used."""
    connection = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
        _prepare(connection, path)
        yield History(connection)
    except (sqlite3.Error, OSError) as error:
        raise MachineError(
            f"{path}: the history cannot be used ({error}): it is only an index of the run directories: remove it, and "
            "`runner history --rebuild` makes it again; or name another file with --history"
        ) from error
    finally:
        if connection is not None:
            connection.close()


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Lay out a new file, or one of an older layout; UsageError where the file is something else's."""
    connection.execute("PRAGMA foreign_keys = ON")
    if _is_ours(connection):
        return
    _in_wal(connection)
    connection.execute("BEGIN EXCLUSIVE")  # of several that find no layout, one makes it
    try:
        (application,), (version,) = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        if tables and (application != APPLICATION or version > FORMAT):
            whose = "of a newer runner" if application == APPLICATION else "no history of this tool"
            raise UsageError(f"{path}: is {whose}: name another file with --history")
        if version != FORMAT:
            for table in ("results", "totals", "runs", "cells", "environments"):
                connection.execute(f"DROP TABLE IF EXISTS {table}")
            for statement in _TABLES.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _is_ours(connection: sqlite3.Connection) -> bool:
    found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    return found == [APPLICATION, FORMAT]


def _in_wal(connection: sqlite3.Connection) -> None:
    """Write ahead, for good. SQLite does not wait for others to let it change this, so we do."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def _record(row: Sequence[object]) -> Record:
    run_id, cell, axes, state, verdict, evidence, seconds, ended_at, facts, resolved, overflow, reason, reruns = row[
        :13
    ]
    loads, seed = row[13:]
    return Record(
        run_id=str(run_id),
        cell=str(cell),
        axes=json.loads(str(axes)),
        state=State(str(state)),
        verdict=Verdict(str(verdict)),
        evidence=Evidence(str(evidence)),
        duration_s=float(str(seconds)),
        ended_at=str(ended_at),
        environment=json.loads(str(facts)),
        resolved=json.loads(str(resolved)),
        overflow=tuple(Shortage(*one) for one in json.loads(str(overflow))),
        reason=str(reason),
        reruns=tuple(State(one) for one in json.loads(str(reruns))),
        loads=str(loads),
        seed=int(str(seed)),
    )


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
