"""Disks that are full, cannot be written or lose a block, and files that were changed: a message, never a traceback."""

import contextlib
import errno
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner import cli, session
from runner.engines.fake import FakeEngine
from runner.errors import MachineError
from runner.journal import Journal, read
from runner.logs import LogStore
from runner.model import CellFinished, CellStarted
from runner.options import EngineName, Machine
from tests.contract.bench import ROOT, Bench, cell, order
from tests.contract.conftest import local_engine
from tests.unit.test_session import failing, table

__all__ = ["local_engine"]

Tell = pytest.CaptureFixture[str]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """What all runs of a test use: every fourth cell fails."""
    fake = FakeEngine(failing)

    @contextlib.contextmanager
    def opened(*_: object, **__: object) -> Iterator[FakeEngine]:
        yield fake
        fake.close()

    monkeypatch.setattr(session, "open_engine", opened)
    monkeypatch.setattr(session, "choose", lambda *_: Machine(engine=EngineName.LOCAL, why="as asked"))
    monkeypatch.setattr(session, "facts_of", lambda *_: lambda order: {})
    return fake


@pytest.fixture
def run(engine: FakeEngine, in_small: Callable[..., Path], tmp_path: Path) -> Path:
    """A run that has come to its end."""
    in_small()
    assert cli.main(["--out", "run", "--jobs", "1", "-q"]) == 1
    return tmp_path / "run"


def said(capsys: Tell) -> str:
    """What the command line said of its trouble; a traceback is a mistake of ours."""
    words = capsys.readouterr().err
    assert "Traceback" not in words
    assert "mistake of the runner" not in words
    return words


def edited(file: Path, change: Callable[[dict], None]) -> None:
    rows = json.loads(file.read_text())
    change(rows[3])
    file.write_text(json.dumps(rows))


def renamed(row: dict) -> None:
    row["axes"]["backnd"] = row["axes"].pop("backend")


def twice(row: dict) -> None:
    row["id"] = "0.32.0-flashinfer-sm90-hybrid_on-k0-c64-solo"


def climbing(row: dict) -> None:
    row["id"] = "../../outside"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (renamed, "has no axis backend, did you mean 'backnd'?"),
        (twice, "is there twice"),
        (climbing, "'../../outside' is no id of a cell"),
    ],
)
@pytest.mark.parametrize("command", ["resume", "report", "merge"])
def test_a_plan_that_was_changed_is_a_message(
    run: Path, capsys: Tell, change: Callable[[dict], None], words: str, command: str
) -> None:
    edited(run / "plan.json", change)
    (run / "results.json").unlink()
    assert cli.main([command, *(["out"] if command == "merge" else []), "run"]) == 2
    assert words in said(capsys)


def test_results_whose_axis_was_renamed_are_a_message(run: Path, capsys: Tell) -> None:
    edited(run / "results.json", renamed)
    assert cli.main(["report", "run"]) == 2
    assert "3.axes: there is no axis backend" in said(capsys)


def test_a_plan_that_is_gone_is_a_message(run: Path, capsys: Tell) -> None:
    (run / "plan.json").unlink()
    assert cli.main(["resume", "run"]) == 2
    assert "run/plan.json: cannot be read (No such file or directory)" in said(capsys)


def test_a_disk_that_is_full_while_a_log_is_written_and_closed_is_one_message(tmp_path: Path) -> None:
    log = LogStore(tmp_path).open("a-b", 1)
    (tmp_path / "cells/a-b").mkdir(parents=True)
    (tmp_path / "cells/a-b/attempt-1.log").symlink_to("/dev/full")
    with pytest.raises(MachineError, match=r"attempt-1\.log: cannot write the log: No space left on device; free"):
        log.write("a word")
    log.close()


def test_a_file_system_that_tells_only_when_a_file_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NFS does. The end of a file of ours is played; the log and the journal both take it for what it is."""

    class Late:
        def close(self) -> None:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    log = LogStore(tmp_path).open("a-b", 1)
    log.write("a word")
    log._file.close()
    log._file = Late()  # type: ignore[assignment]
    with pytest.raises(MachineError, match=r"attempt-1\.log: cannot write the log: Disk quota exceeded"):
        log.close()
    journal = Journal(tmp_path / "events.jsonl")
    journal._file.close()
    journal._file = Late()  # type: ignore[assignment]
    with pytest.raises(MachineError, match=r"events\.jsonl: cannot write the journal: Disk quota exceeded"):
        journal.close()


def test_a_log_on_a_full_disk_ends_a_run_with_a_message(local_engine: object, tmp_path: Path) -> None:
    place = tmp_path / "cells/print_a_word-off-0"
    place.mkdir(parents=True)
    (place / "attempt-1.log").symlink_to("/dev/full")
    with pytest.raises(MachineError, match="No space left on device; free some space"):
        Bench(local_engine, tmp_path).run(order(cell("print_a_word")))  # type: ignore[arg-type]


def mounted(options: str, inner: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs a shell script with `run` mounted so, in a mount namespace of its own: nothing of it is seen outside."""
    own = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    if subprocess.run([*own, "true"], check=False, capture_output=True).returncode:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no mount namespace of our own is to be had")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*own, "sh", "-c", f"{options} && {inner}"], check=False, capture_output=True, text=True, cwd=folder, env=env
    )


PLAYED = f"{sys.executable} -m tests.faults.played"
READ_ONLY = "mount --bind run run && mount -o remount,ro,bind run"


def test_a_run_that_can_only_be_read_is_shown_and_not_gone_on_with(run: Path) -> None:
    done = mounted(READ_ONLY, f"{PLAYED} resume run", run.parent)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    assert "run: cannot be written (Read-only file system)" in done.stderr
    assert "`runner report run` shows a run that can only be read" in done.stderr
    shown = mounted(READ_ONLY, f"{PLAYED} report run", run.parent)
    assert (shown.returncode, "Traceback" in shown.stderr) == (1, False), shown.stderr
    assert "exit 1: product trouble" in shown.stdout
    assert "the reports were not written anew: run/results.json: cannot be written (Read-only" in shown.stderr


@pytest.mark.parametrize("size", ["4k", "12k", "100k", "200k"])
def test_a_disk_that_fills_at_any_moment_ends_a_run_with_a_message(run: Path, size: str) -> None:
    """A file system that small, in which the run directory lies, the first write fails at one place or another."""
    script = f"mkdir disk && mount -t tmpfs -o size={size} tmpfs disk"
    done = mounted(script, f"{PLAYED} --out disk/run --jobs 1 -q", run.parent)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("seed", range(12))
def test_zeros_in_the_middle_of_a_journal_cost_the_lines_that_they_hit(
    run: Path, engine: FakeEngine, capsys: Tell, seed: int
) -> None:
    whole, journal = table(run), run / "events.jsonl"
    data = journal.read_bytes()
    start = random.Random(seed).randrange(0, len(data) - 4096)
    hit = range(start, start + 4096)
    journal.write_bytes(data[:start] + b"\0" * 4096 + data[start + 4096 :])
    kept, at = set(), 0
    for line in data.splitlines(keepends=True):
        if not set(range(at, at + len(line) - 1)) & set(hit):  # its last byte is the end of the line, and none of it
            kept.add(json.loads(line).get("outcome", {}).get("cell", {}).get("id"))
        at += len(line)
    capsys.readouterr()
    found = {e.outcome.cell.id for e in read(journal) if isinstance(e, CellFinished)}
    assert found == kept - {None}
    assert "events.jsonl: 1 damaged line, the first is line " in said(capsys)
    before = len(list(read(journal)))
    assert cli.main(["resume", "run", "--jobs", "1", "-q"]) == 1
    assert "`runner resume run` runs the cells again that have no result now" in said(capsys)
    assert table(run) == whole
    again = {e.cell for e in list(read(journal))[before:] if isinstance(e, CellStarted)}
    assert again == {id_ for id_, verdict in whole if verdict not in ("unsupported", "skipped")} - found
    assert engine.workers


def test_a_journal_of_zeros_alone_has_nothing_and_the_run_is_run(run: Path) -> None:
    whole = table(run)
    (run / "events.jsonl").write_bytes(b"\0" * 4096)
    assert cli.main(["resume", "run", "--jobs", "1", "-q"]) == 1
    assert table(run) == whole
