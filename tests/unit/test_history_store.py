"""The history's file: one index of run directories, whoever writes it, whoever is killed, whenever it is deleted."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner import results
from runner.errors import MachineError, RunnerError, UsageError
from runner.history import index, store
from runner.history.records import Shortage
from runner.model import Evidence, State
from tests.conftest import PROJECT
from tests.unit.history_runs import FACTS, loads_of, row, run_id, write

Dump = tuple[object, ...]


def dump(history: store.History) -> Dump:
    """All that it answers from."""
    return history.runs(), history.totals(), history.records()


def fresh(folder: Path, file: Path) -> Dump:
    """Of a history that is made anew from a folder."""
    with store.opened(file) as history:
        index.rebuild(history, folder, results.read, pytest.fail)
        return dump(history)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Twelve runs of 40 cells, some of them bad."""
    folder = tmp_path / "runs"
    for number in range(12):
        states = [State.OVERFLOW if (number + k) % 5 == 0 else State.PASS for k in range(40)]
        rows = [row(state, axes={"spec_k": k}, at=f"2026-11-29T15:{number:02}:00") for k, state in enumerate(states)]
        write(folder, run_id(number), rows)
    return folder


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    rows = [
        row(State.OVERFLOW, reruns=(State.PASS, State.OVERFLOW), duration_s=1.5),
        row(State.UNSUPPORTED, axes={"spec_k": 1}),
        row(State.NOT_RUN, axes={"spec_k": 2}),
    ]
    run = write(tmp_path, "20261129T150400Z-3f9a", rows, seed=7, loads=loads_of(1))
    with store.opened(tmp_path / "h") as history:
        index.add(history, run, results.read)
        (one,) = history.records()
        (entry,) = history.runs()
        totals = {(t.verdict.value, t.evidence, t.cells) for t in history.totals()}
    assert (one.run_id, one.cell, one.state, one.evidence) == (
        "20261129T150400Z-3f9a",
        rows[0].id,
        State.OVERFLOW,
        Evidence.EMULATED,
    )
    assert one.overflow == (Shortage("paged_kv_indptr", "raised", 6, 2),)
    assert (one.reruns, one.duration_s, one.seed) == ((State.PASS, State.OVERFLOW), 1.5, 7)
    assert (one.environment, one.axes["arch"], one.resolved) == (FACTS, "sm90", {"backend": "FLASHINFER"})
    assert entry.started_at == "2026-11-29T15:04:00+00:00"
    assert totals == {(word, Evidence.EMULATED, 1) for word in ("overflow", "unsupported", "not_run")}


def test_it_can_be_deleted_at_any_time(runs: Path, tmp_path: Path) -> None:
    before = fresh(runs, tmp_path / "h")
    for file in tmp_path.glob("h*"):
        file.unlink()
    with store.opened(tmp_path / "h") as history:
        index.catch_up(history, runs, results.read, pytest.fail)
        assert dump(history) == before
        assert len(history.records()) == 480


WRITER = """
import sys
from pathlib import Path
from runner import results
from runner.history import index, store
file, *runs = map(Path, sys.argv[1:])
print("ready", flush=True)
sys.stdin.readline()
while True:
    for run in runs:
        with store.opened(file) as history:
            index.add(history, run, results.read)
        print("added", flush=True)
    if ONCE:
        break
"""


def writer(file: Path, runs: list[Path], *, once: bool) -> subprocess.Popen[str]:
    code = f"ONCE = {once}\n{WRITER}"
    return subprocess.Popen(
        [sys.executable, "-c", code, str(file), *map(str, runs)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
    )


def test_many_processes_write_at_once(runs: Path, tmp_path: Path) -> None:
    """Eight of them, none of which finds the file there; each run is added by two."""
    directories = sorted(runs.iterdir())
    writers = [writer(tmp_path / "h", directories[n % 4 :: 4], once=True) for n in range(8)]
    for one in writers:
        assert one.stdout
        assert one.stdout.readline() == "ready\n"
    for one in writers:
        assert one.stdin
        one.stdin.write("\n")
        one.stdin.flush()
    for one in writers:
        one.communicate(timeout=60)
        assert one.returncode == 0
    with store.opened(tmp_path / "h") as history:
        found = dump(history)
    assert found == fresh(runs, tmp_path / "again")


@pytest.mark.parametrize("seed", range(3))
def test_a_writer_that_is_killed_leaves_what_can_be_gone_on_with(runs: Path, tmp_path: Path, seed: int) -> None:
    """kill -9 at some moment of its writing, several times over; afterwards only what is missing is added."""
    chance = random.Random(seed)
    for _ in range(3):
        one = writer(tmp_path / "h", sorted(runs.iterdir()), once=False)
        assert one.stdin
        assert one.stdout
        assert one.stdout.readline() == "ready\n"
        one.stdin.write("\n")
        one.stdin.flush()
        for _ in range(chance.randrange(3)):
            one.stdout.readline()
        time.sleep(chance.random() * 0.02)
        os.kill(one.pid, signal.SIGKILL)
        one.communicate()
        with store.opened(tmp_path / "h") as history:  # whole, each run with all or none of its 40 cells
            assert len(history.records()) == 40 * len(history.runs())
    with store.opened(tmp_path / "h") as history:
        index.catch_up(history, runs, results.read, pytest.fail)
        found = dump(history)
    assert found == fresh(runs, tmp_path / "again")


def test_a_run_that_changed_is_read_again_and_no_other(runs: Path, tmp_path: Path) -> None:
    fresh(runs, tmp_path / "h")
    changed = runs / run_id(3)
    (changed / results.NAME).write_text(results.to_json([row(State.CRASH)]))
    read = []
    with store.opened(tmp_path / "h") as history:
        index.catch_up(history, runs, lambda run: read.append(run) or results.read(run), pytest.fail)
        assert read == [changed]
        found = dump(history)
    assert found == fresh(runs, tmp_path / "again")


def test_a_run_whose_directory_is_gone_stays_until_it_is_made_anew(runs: Path, tmp_path: Path) -> None:
    fresh(runs, tmp_path / "h")
    gone = runs / run_id(0)
    gone.rename(tmp_path / "elsewhere")
    with store.opened(tmp_path / "h") as history:
        index.catch_up(history, runs, results.read, pytest.fail)
        assert len(history.runs()) == 12
        index.rebuild(history, runs, results.read, pytest.fail)
        assert len(history.runs()) == 11


def test_a_copy_of_a_run_is_the_same_run(runs: Path, tmp_path: Path) -> None:
    write(runs, "copy", [row()])
    copied = runs / "copy"
    for name in ("run.json", results.NAME):
        (copied / name).write_bytes((runs / run_id(0) / name).read_bytes())
    with store.opened(tmp_path / "h") as history:
        for _ in range(2):
            index.catch_up(history, runs, results.read, pytest.fail)
            paths = {entry.run_id: Path(entry.path).name for entry in history.runs()}
            assert len(paths) == 12
            assert paths[run_id(0)] == run_id(0), "the first one stays, however often one looks"


def test_what_cannot_be_read_is_told_and_the_rest_is_there(runs: Path, tmp_path: Path) -> None:
    (runs / run_id(5) / results.NAME).write_text("[{]")
    said: list[str] = []
    with store.opened(tmp_path / "h") as history:
        index.catch_up(history, runs, results.read, said.append)
        assert len(history.runs()) == 11
    (one,) = said
    assert "left out of the history" in one
    assert run_id(5) in one


def test_a_run_from_elsewhere_is_kept_when_it_is_made_anew(runs: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "ci", "20261201T000000Z-0000", [row(at="2026-12-01T00:00:00+00:00")])
    with store.opened(tmp_path / "h") as history:
        index.add(history, other, results.read)
        index.rebuild(history, runs, results.read, pytest.fail)
        assert len(history.runs()) == 13


def test_a_file_of_an_older_layout_is_made_anew(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "h"
    before = fresh(runs, file)
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 0")
    connection.close()
    with store.opened(file) as history:
        assert not history.runs()
        index.catch_up(history, runs, results.read, pytest.fail)
        assert dump(history) == before


def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "other"
    text.write_text("no database at all, but long enough to be taken for one " * 50)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(MachineError, match="remove it"), store.opened(text):
        pass
    with pytest.raises(UsageError, match="no history of this tool"), store.opened(other):
        pass
    connection = sqlite3.connect(other)
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("mine",)]
    connection.close()


def test_trouble_with_the_history_fails_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [row()]
    run = write(Path("runs"), run_id(1), rows)
    Path("runs/history.sqlite").mkdir()
    said: list[str] = []
    index.remember(run, rows, said.append)
    assert len(said) == 1
    assert "the history was not updated" in said[0]


def test_only_a_run_under_runs_or_one_that_is_told_where_adds_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(index.VARIABLE, raising=False)
    rows = [row()]
    index.remember(write(Path("out"), run_id(1), rows), rows, pytest.fail)
    assert not Path("runs").exists()
    index.remember(write(Path("runs"), run_id(2), rows), rows, pytest.fail)
    monkeypatch.setenv(index.VARIABLE, "all.sqlite")
    index.remember(Path("out") / run_id(1), rows, pytest.fail)
    for file, expected in (("runs/history.sqlite", run_id(2)), ("all.sqlite", run_id(1))):
        with store.opened(Path(file)) as history:
            assert [entry.run_id for entry in history.runs()] == [expected]


def test_hostile_words_are_kept_as_they_are(tmp_path: Path) -> None:
    hostile = "'); DROP TABLE runs; -- \x1b[31m\u202e"
    rows = [row(State.FAIL, reason=hostile, facts={"machine": hostile})]
    with store.opened(tmp_path / "h") as history:
        index.add(history, write(tmp_path, run_id(1), rows), results.read)
        (one,) = history.records()
    assert (one.reason, one.environment["machine"]) == (hostile, hostile)


def test_errors_are_ours() -> None:
    with pytest.raises(RunnerError), store.opened(Path("/proc/no/such/place")):
        pass
