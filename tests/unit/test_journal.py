"""A journal gives back what was put in, whatever cut it off."""

import json
from pathlib import Path

import pytest

from runner import journal
from runner.errors import MachineError
from runner.journal import Journal, read
from runner.model import (
    Batch,
    CaseReported,
    CaseResult,
    Cell,
    CellFinished,
    CellOutcome,
    CellStarted,
    Death,
    Event,
    Evidence,
    How,
    Overflow,
    RunFinished,
    RunStarted,
    State,
    WorkerReady,
    WorkerStarting,
)
from tests.loads import SOLO

BATCH = Batch(query_lens=(320,), seq_lens=(320,))
CASE = CaseResult(
    name="test_x",
    state=State.OVERFLOW,
    message="ends with ünïcode \u2028 and\nlines",
    duration_s=0.5,
    overflow=(Overflow(buffer="indptr", required=6, allocated=2, how=How.SHORT, batch=BATCH),),
)
OUTCOME = CellOutcome(
    cell=Cell(id="a-k3", axes={"backend": "a", "spec_k": 3}, labels={"backend": "a", "spec_k": "k3"}, load=SOLO),
    evidence=Evidence.EMULATED,
    cases=(CASE,),
    death=Death(signal="SIGSEGV"),
    log="cells/a-k3/attempt-1.log",
    duration_s=1.25,
    environment={"vllm": "0.32.0"},
    resolved={"backend": "flashinfer", "hybrid": None, "kv_spec": {"kind": "chunked"}},
    attempts=1,
)
EVENTS: list[Event] = [
    RunStarted(run_id="20261129T150400Z-3f9a", argv=("runner", "-q"), versions={"runner": "1"}, planned=2),
    WorkerStarting(slot=0, environment="0.32.0"),
    WorkerReady(slot=0, environment="0.32.0", versions={"vllm": "0.32.0"}, import_s=7.5),
    CellStarted(slot=0, cell="a-k3", attempt=1),
    CaseReported(slot=0, cell="a-k3", case=CASE),
    CellFinished(outcome=OUTCOME),
    RunFinished(stopped=True),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Journal(tmp_path / "run" / "events.jsonl") as journal:
        for event in EVENTS:
            journal.append(event)
    return tmp_path / "run" / "events.jsonl"


def test_all_events_come_back_as_they_were(path: Path) -> None:
    assert list(read(path)) == EVENTS


def test_each_event_is_one_line_with_its_kind_and_time(path: Path) -> None:
    entries = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    assert [entry["event"] for entry in entries] == [
        "run_started",
        "worker_starting",
        "worker_ready",
        "cell_started",
        "case_reported",
        "cell_finished",
        "run_finished",
    ]
    assert all(entry["at"].endswith("+00:00") for entry in entries)


def test_an_event_is_in_the_file_before_append_returns(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "events.jsonl")
    journal.append(EVENTS[3])
    assert list(read(tmp_path / "events.jsonl")) == [EVENTS[3]]
    journal.close()


def test_a_torn_last_line_is_left_out_wherever_it_was_torn(path: Path) -> None:
    whole = path.read_bytes()
    start = whole.rindex(b"\n", 0, len(whole) - 1) + 1
    for end in range(start, len(whole)):
        path.write_bytes(whole[:end])
        assert list(read(path)) == EVENTS[:-1]


def test_an_empty_journal_has_no_events(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").touch()
    assert list(read(tmp_path / "events.jsonl")) == []


def test_a_kind_of_a_later_version_is_passed_over(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"event": "device_leased", "at": "2027-01-01T00:00:00+00:00", "gpu": 3}\n')
    assert list(read(path)) == EVENTS


WRONG = [b"nonsense", b"{}", b"[]", b'{"event": "cell_started", "at": ""}', b"\xff", b"[" * 5000, b"x\0" * 4096]


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_in_the_middle_costs_itself_and_is_told_with_its_number(path: Path, line: bytes) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], line + b"\n", *lines[2:]]))
    told: list[str] = []
    assert list(read(path, told.append)) == EVENTS
    (words,) = told
    assert words.startswith(f"{path}: 1 damaged line, the first is line 3: what they said is lost. `runner resume ")


@pytest.mark.parametrize("line", WRONG[:-1])
def test_a_file_of_wrong_lines_is_no_journal_and_an_error_with_the_number_of_the_first(path: Path, line: bytes) -> None:
    path.write_bytes(line + b"\n" + line + b"\n")
    with pytest.raises(MachineError, match=r"events\.jsonl:1: this is no entry of a journal"):
        list(read(path))


def test_what_stands_whole_beside_zeros_is_kept(path: Path) -> None:
    """The end of one line and the whole of the next were hit; of the line behind that, nothing was."""
    first, second, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first[:-1] + b"\0" * (1 + len(second)) + b"".join(rest))
    assert list(read(path, lambda _: None)) == [EVENTS[0], *EVENTS[2:]]


def test_a_journal_that_is_not_there_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"nothing\.jsonl: cannot read the journal: No such file"):
        list(read(tmp_path / "nothing.jsonl"))


def test_a_full_disk_is_an_error_with_what_to_do() -> None:
    journal = Journal(Path("/dev/full"))
    with pytest.raises(MachineError, match="No space left on device; free some space"):
        journal.append(EVENTS[0])
    journal.close()


def test_the_file_is_on_the_disk_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut costs at most; the clock is moved by hand."""
    synced, clock = [], [100.0]
    monkeypatch.setattr(journal.os, "fdatasync", synced.append)
    monkeypatch.setattr(journal.time, "monotonic", lambda: clock[0])
    with journal.Journal(tmp_path / "events.jsonl") as written:
        for at, times in ((100.0, 0), (100.9, 0), (101.1, 1), (101.5, 1), (102.2, 2)):
            clock[0] = at
            written.append(EVENTS[0])
            assert len(synced) == times
