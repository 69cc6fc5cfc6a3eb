"""Runs that end early and are gone on with: the table is that of a run that nothing disturbed."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner import cli, machine, rundir, session
from runner.devices import Device
from runner.engines.base import CannotStart
from runner.engines.fake import FakeEngine, FakeWorker, Step
from runner.errors import UsageError
from runner.journal import read
from runner.messages import Case, Done
from runner.model import Cell, CellFinished, CellStarted, Evidence, Order, State
from runner.options import EngineName, Machine


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """What all runs of a test use; no environment is built."""
    fake = FakeEngine(passing)

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[FakeEngine]:
        yield fake
        fake.close()

    monkeypatch.setattr(session, "open_engine", opened)
    monkeypatch.setattr(session, "choose", lambda *_: Machine(engine=EngineName.LOCAL, why="as asked"))
    monkeypatch.setattr(session, "facts_of", lambda *_: lambda order: {})
    return fake


def passing(cell: str, _timeout_s: float, state: State = State.PASS) -> Iterable[Step]:
    case = Case(cell=cell, name="test_x", state=state, message="", duration_s=0.0)
    return [case, Done(cell=cell, duration_s=0.0, death=None)]


def failing(cell: str, timeout_s: float) -> Iterable[Step]:
    """Every fourth cell fails, by its id."""
    return passing(cell, timeout_s, State.FAIL if sum(cell.encode()) % 4 == 0 else State.PASS)


def table(run: Path) -> list[tuple[str, str]]:
    return [(row["id"], row["verdict"]) for row in json.loads((run / "results.json").read_text())]


def started(run: Path) -> list[str]:
    return [event.cell for event in read(run / "events.jsonl") if isinstance(event, CellStarted)]


@pytest.mark.parametrize("torn", [b"", b'{"event": "cell_fini', b"\0" * 4096])
@pytest.mark.parametrize("kept", [0, 1, 7, 40])
def test_a_run_that_was_cut_off_anywhere_ends_with_the_same_table(
    engine: FakeEngine, in_small, tmp_path: Path, kept: int, torn: bytes
) -> None:
    engine.play = failing
    in_small()
    assert cli.main(["--out", "whole", "--jobs", "1"]) == 1
    assert cli.main(["--out", "cut", "--jobs", "1"]) == 1
    journal = tmp_path / "cut/events.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:kept]) + torn)
    (tmp_path / "cut/results.json").unlink()
    done = sum(isinstance(event, CellFinished) for event in read(journal))
    assert cli.main(["resume", "cut", "--jobs", "1"]) == 1
    assert table(tmp_path / "cut") == table(tmp_path / "whole")
    again = [event.outcome.cell.id for event in read(journal) if isinstance(event, CellFinished)]
    assert len(again) == len(set(again)), "a cell that has a result is not run again"
    assert len(again) - done == len(started(tmp_path / "whole")) - done


def test_what_the_machine_could_not_run_is_tried_again(engine: FakeEngine, in_small, tmp_path: Path) -> None:
    in_small()
    opened = iter([True] * 2)  # the orders: emulated, cpu
    start = engine.start

    def cannot(order: Order) -> FakeWorker:
        if next(opened, False):
            raise CannotStart("no image")
        return start(order)

    engine.start = cannot  # type: ignore[method-assign]
    assert cli.main(["--out", "run", "--jobs", "1", "--no-known"]) == 3
    assert {verdict for _, verdict in table(tmp_path / "run")} == {"infra", "unsupported"}
    assert cli.main(["resume", "run"]) == 0
    assert {verdict for _, verdict in table(tmp_path / "run")} == {"pass", "unsupported"}


def test_a_cell_whose_case_says_that_it_was_the_machine_is_tried_again(
    engine: FakeEngine, in_small, tmp_path: Path
) -> None:
    in_small()
    engine.play = lambda cell, timeout_s: passing(cell, timeout_s, State.INFRA)
    assert cli.main(["--out", "run", "--no-known"]) == 3
    engine.play = passing
    assert cli.main(["resume", "run"]) == 0
    assert {verdict for _, verdict in table(tmp_path / "run")} == {"pass", "unsupported"}


def test_a_run_that_is_whole_stays_as_it_is(engine: FakeEngine, in_small, tmp_path: Path) -> None:
    in_small()
    assert cli.main(["--out", "run", "--no-known"]) == 0
    before, workers = table(tmp_path / "run"), len(engine.workers)
    assert cli.main(["resume", "run"]) == 0
    assert (table(tmp_path / "run"), len(engine.workers)) == (before, workers)


def test_two_runners_on_one_run_are_one_too_many(
    engine: FakeEngine, in_small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_small()
    assert cli.main(["--out", "run", "--no-known"]) == 0
    with rundir.held(tmp_path / "run"):
        assert cli.main(["resume", "run"]) == 2
    assert "run: process " in capsys.readouterr().err
    assert cli.main(["resume", "run"]) == 0


@pytest.mark.parametrize("name", ["nowhere", ".", "matrix.yaml"])
def test_what_is_no_run_cannot_be_gone_on_with(in_small, name: str) -> None:
    in_small()
    with pytest.raises(UsageError, match="name a run directory"):
        session.resume(Path(name), jobs=None, json=False, verbosity=-1)


def test_a_run_that_had_its_time_can_be_gone_on_with(
    engine: FakeEngine, in_small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def slowly(cell: str, timeout_s: float) -> Iterable[Step]:
        time.sleep(0.1)
        return passing(cell, timeout_s)

    engine.play = slowly
    in_small()
    assert cli.main(["--out", "run", "--jobs", "1", "--no-known", "--limit", "0.35"]) == 4
    verdicts = [verdict for _, verdict in table(tmp_path / "run")]
    assert 0 < verdicts.count("pass") < 10
    assert "not_run" in verdicts
    assert "to go on: runner resume run" in capsys.readouterr().err
    engine.play = passing
    assert cli.main(["resume", "run"]) == 0


def test_the_seed_and_the_limit_of_a_run_are_kept(engine: FakeEngine, in_small, tmp_path: Path) -> None:
    in_small()
    assert cli.main(["--out", "run", "--seed", "7", "--timeout", "9", "--no-known", "--jobs", "1"]) == 0
    (tmp_path / "run/events.jsonl").unlink()
    orders = []
    start = engine.start
    engine.start = lambda order: orders.append(order) or start(order)  # type: ignore[method-assign, func-returns-value]
    assert cli.main(["resume", "run"]) == 0
    assert {order.seed for order in orders} == {7}
    assert {told["run"]["timeout_s"] for worker in engine.workers for told in worker.told} == {9.0}
    assert rundir.asked(tmp_path / "run").options.known is False


def test_a_flake_is_told_and_stays_red(engine: FakeEngine, in_small, tmp_path: Path) -> None:
    """Fails the first time and every second time after that."""
    times: Counter[str] = Counter()

    def flaky(cell: str, timeout_s: float) -> Iterable[Step]:
        times[cell] += 1
        return passing(cell, timeout_s, State.FAIL if times[cell] % 2 else State.PASS)

    engine.play = flaky
    in_small()
    assert cli.main(["--out", "run", "--no-known", "--reruns", "3", "--jobs", "1"]) == 1
    rows = [row for row in json.loads((tmp_path / "run/results.json").read_text()) if row["state"] != "unsupported"]
    assert {tuple(row["reruns"]) for row in rows} == {("pass", "fail", "pass")}
    assert {row["verdict"] for row in rows} == {"fail"}
    assert all(row["reason"].startswith("flaky: passed 2 of 3 reruns") for row in rows)
    attempts = [event.attempt for event in read(tmp_path / "run/events.jsonl") if isinstance(event, CellStarted)]
    assert attempts == [1, 2, 3, 4] * len(rows), "each has a log of its own"


def crashing(text: str) -> str:
    """The small matrix, whose known overflow is a crash."""
    return text.replace("state: overflow\n    how: raised", "state: crash")


def test_cells_that_are_known_to_crash_are_not_run_unless_asked(
    engine: FakeEngine, in_small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = in_small()
    path.write_text(crashing(path.read_text()))
    assert cli.main(["--out", "run", "--filter", "sm90,k3"]) == 0
    shown = capsys.readouterr().out
    rows = json.loads((tmp_path / "run/results.json").read_text())
    link = "https://github.com/vllm-project/vllm/issues/49980"
    reason = f"crash is known here ({link}): not run without --run-known-crashes"
    assert {(row["verdict"], row["known"], row["reason"]) for row in rows} == {("skipped", link, reason)}
    assert len(rows) == 8
    assert started(tmp_path / "run") == []
    assert reason in " ".join(shown.split())
    assert cli.main(["resume", "run"]) == 0
    assert started(tmp_path / "run") == [], "what was not wanted then is not wanted now"


@pytest.mark.parametrize(("option", "verdict"), [("--run-known-crashes", "xpass"), ("--no-known", "pass")])
def test_known_crashes_run_where_somebody_asks(
    engine: FakeEngine, in_small, tmp_path: Path, option: str, verdict: str
) -> None:
    path = in_small()
    path.write_text(crashing(path.read_text()))
    assert cli.main(["--out", "run", "--filter", "sm90,k3", option]) == (1 if verdict == "xpass" else 0)
    assert {v for _, v in table(tmp_path / "run")} == {verdict}
    assert len(started(tmp_path / "run")) == 8


def test_a_known_issue_that_passes_is_told_by_what_was_seen_of_it(
    engine: FakeEngine, in_small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_small()
    assert cli.main(["--out", "some", "--filter", "flashinfer,sm90,k3,c64", "--jobs", "1"]) == 1
    shown = capsys.readouterr().out
    assert "take the entry out" not in shown
    assert "Known issue 1 is over in 2 of its 8 cells: 6 not seen." in shown
    assert "`runner --filter arch=sm90 --filter 'spec_k>=3'` runs 6 of those that were not seen." in shown
    assert cli.main(["--out", "all", "--filter", "arch=sm90", "--filter", "spec_k>=3", "--jobs", "1"]) == 1
    shown = capsys.readouterr().out
    assert "Known issue 1 is over in all of its 8 cells: take the entry out (`runner known prune" in shown
    assert cli.main(["report", "all"]) == 1
    assert "take the entry out" in capsys.readouterr().out


def test_a_deployment_that_cannot_overflow_passes_beside_a_known_overflow(
    engine: FakeEngine, in_small, tmp_path: Path
) -> None:
    def roomy(cell: str, _timeout_s: float) -> Iterable[Step]:
        case = Case(cell=cell, name="test_x", state=State.PASS, resolved={"bounds": {"paged_kv_indptr": [17, 17]}})
        return [case, Done(cell=cell, duration_s=0.0, death=None)]

    in_small()
    engine.play = roomy
    assert cli.main(["--out", "run", "--filter", "flashinfer,sm90,k3", "--jobs", "1"]) == 0
    assert {verdict for _, verdict in table(tmp_path / "run")} == {"pass"}
    before = (tmp_path / "matrix.yaml").read_text()
    assert cli.main(["known", "prune", "run", "--write"]) == 0
    assert (tmp_path / "matrix.yaml").read_text() == before


def test_an_expired_known_issue_is_red_and_named(
    engine: FakeEngine, in_small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.play = failing
    path = in_small("2027-01-31", "2020-01-31")
    path.write_text(path.read_text().replace("state: overflow\n    how: raised", "state: fail"))
    assert cli.main(["--out", "run", "--filter", "sm90,k3"]) == 1
    rows = json.loads((tmp_path / "run/results.json").read_text())
    bad = [row for row in rows if row["state"] == "fail"]
    assert 0 < len(bad) < len(rows) == 8
    assert {row["verdict"] for row in bad} == {"fail"}
    assert all("has expired on 2020-01-31" in row["reason"] for row in bad)
    said = f"expired: {rows[0]['expired']}: 8 cells it spoke of, {len(bad)} bad and {8 - len(bad)} passing: decide anew"
    assert said in capsys.readouterr().out
    assert said in (tmp_path / "run/report.md").read_text()


def test_an_expired_known_issue_of_cells_that_pass_is_named_too(
    engine: FakeEngine, in_small, capsys: pytest.CaptureFixture[str]
) -> None:
    in_small("2027-01-31", "2020-01-31")
    assert cli.main(["--out", "run", "--filter", "sm90,k3"]) == 0
    assert "8 cells it spoke of, 0 bad and 8 passing: take it out" in capsys.readouterr().out


def test_a_plan_shows_what_is_skipped_and_why(
    engine: FakeEngine, in_small, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("runner.machine.choose", lambda *_: Machine(engine=EngineName.LOCAL, why="as asked"))
    path = in_small()
    path.write_text(crashing(path.read_text()))
    assert cli.main(["plan"]) == 0
    assert "cells: 72, of them 52 to run, 8 skipped and 12 unsupported" in capsys.readouterr().out
    assert cli.main(["plan", "--run-known-crashes"]) == 0
    assert "cells: 72, of them 60 to run and 12 unsupported" in capsys.readouterr().out


@pytest.fixture
def on_a_gpu_machine(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    gpu = Device(index=0, uuid="GPU-1", name="NVIDIA H200", arch="sm90", memory_mib=1, driver="580")
    on = Machine(engine=EngineName.DOCKER, why="as asked; GPUs: sm90", devices=(gpu,))
    monkeypatch.setattr(session, "choose", lambda *_: on)
    return engine


def evidence(run: Path) -> Counter[tuple[str, str, str]]:
    rows = json.loads((run / "results.json").read_text())
    return Counter(
        (row["axes"]["arch"], row["evidence"], row["state"]) for row in rows if row["state"] != "unsupported"
    )


@pytest.mark.parametrize(
    ("options", "code", "of_sm100"),
    [
        ((), 0, ("emulated", "pass")),
        (("--evidence", "device"), 0, ("device", "skipped")),
        (("--require-device",), 3, ("device", "skipped")),
    ],
)
def test_a_cell_without_a_device_is_emulated_or_skipped_as_asked(
    on_a_gpu_machine: FakeEngine,
    in_small,
    tmp_path: Path,
    options: tuple[str, ...],
    code: int,
    of_sm100: tuple[str, str],
) -> None:
    in_small()
    assert cli.main(["--out", "run", "--no-known", "--filter", "sm90,sm100", *options]) == code
    assert set(evidence(tmp_path / "run")) == {("sm90", "device", "pass"), ("sm100", *of_sm100)}
    rows = json.loads((tmp_path / "run/results.json").read_text())
    reasons = {row["reason"] for row in rows if row["state"] == "skipped"}
    assert reasons <= {"there is no sm100 device here: as asked; GPUs: sm90"}
    journal = (tmp_path / "run/events.jsonl").read_text()
    assert cli.main(["resume", "run"]) == code
    assert journal.count("cell_finished") == (tmp_path / "run/events.jsonl").read_text().count("cell_finished")
    assert cli.main(["report", "run"]) == code


def test_a_known_crash_is_no_want_of_a_device(on_a_gpu_machine: FakeEngine, in_small) -> None:
    path = in_small()
    path.write_text(crashing(path.read_text()))
    assert cli.main(["--out", "run", "--filter", "sm90,k3", "--require-device"]) == 0
    assert cli.main(["--out", "lacking", "--filter", "sm100,k3", "--require-device"]) == 3


def test_a_gpu_that_is_there_can_be_left_alone(on_a_gpu_machine: FakeEngine, in_small, tmp_path: Path) -> None:
    in_small()
    assert cli.main(["--out", "run", "--no-known", "--filter", "sm90", "--evidence", "emulated"]) == 0
    assert set(evidence(tmp_path / "run")) == {("sm90", "emulated", "pass")}


def test_a_device_cannot_be_required_and_left_alone(in_small, capsys: pytest.CaptureFixture[str]) -> None:
    in_small()
    assert cli.main(["--require-device", "--evidence", "emulated"]) == 2
    assert "no GPU is used then" in capsys.readouterr().err


def order_of(cells: int, **axes: str) -> Order:
    made = [Cell(id=f"c-{n}", axes=axes, labels={}, load=None, unsupported="") for n in range(cells)]  # type: ignore[arg-type]
    return Order(environment="0.32.0", evidence=Evidence.EMULATED, cells=tuple(made))


def test_a_second_worker_starts_only_where_it_saves_more_than_it_takes_to_import_vllm() -> None:
    """A metadata cell takes 0.15 s and a worker 6 to 8 s to start (benchmarks/); other cells take seconds."""
    few, many = order_of(24), order_of(25)
    assert [machine.worth_starting((one,)) for one in (few, many, order_of(784))] == [1, 2, 33]
    assert machine.worth_starting((order_of(3, case="engine"),)) == 3
    assert machine.worth_starting((few, few)) == 2, "each environment has its own"
    assert machine.worth_starting(()) == 1
