"""Trouble that a cell itself brings about, without walls around its worker: it is the cell's, and nobody else's."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.engines import channel
from runner.engines.local import FOLDER, LocalEngine
from runner.model import CellStarted, Death, Event, State, WorkerReady
from runner.worker import LANDLOCK_SIGNALS, landlock
from tests.contract.bench import CASES, WORKER, Bench, cell, order, passed
from tests.contract.conftest import local_engine

__all__ = ["local_engine"]


@pytest.fixture
def bench(local_engine: LocalEngine, tmp_path: Path) -> Bench:
    return Bench(local_engine, tmp_path)


@pytest.fixture
def old_worker(tmp_path: Path) -> Path:
    """A worker as on a kernel that has no Landlock: its system calls have numbers that no kernel has."""
    text = WORKER.read_text()
    assert text.count("= 444, 446") == 1
    (tmp_path / "old").mkdir()
    place = tmp_path / "old" / "worker.py"
    place.write_text(text.replace("= 444, 446", "= 4444, 4446"))
    return place


@pytest.fixture
def bare(old_worker: Path, tmp_path: Path) -> Iterator[Bench]:
    engine = LocalEngine(python_for=lambda _: Path(sys.executable), worker=old_worker, cases=CASES)
    yield Bench(engine, tmp_path)
    engine.close()


@pytest.fixture
def first_process(old_worker: Path, tmp_path: Path) -> Iterator[Bench]:
    """A worker that is the first process where it runs, as in a container, on a kernel that has no Landlock."""
    own = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    own += [] if os.getuid() == 0 else ["--map-root-user"]
    if subprocess.run([*own, "true"], check=False, capture_output=True).returncode:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no namespace of processes of our own is to be had")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {" ".join(own)} {sys.executable} "$@"\n')
    python.chmod(0o755)
    engine = LocalEngine(python_for=lambda _: python, worker=old_worker, cases=CASES)
    yield Bench(engine, tmp_path)
    engine.close()


def needs(version: int) -> None:
    if landlock() < version:
        pytest.skip(f"this kernel has version {landlock()} of Landlock, and not {version}")


def test_a_cell_and_its_strays_cannot_speak_on_the_pipes_of_other_processes(bench: Bench) -> None:
    """Not on those of its worker, of the runner, or of another worker and its cell; as root, too."""
    needs(1)
    flag = Path(f"/tmp/attnmatrix-reached-{os.getpid()}")
    flag.unlink(missing_ok=True)
    outcomes = bench.run(order(cell("wait_to_be_reached"), cell("reach_another_cell")), jobs=2, timeout_s=90.0)
    flag.unlink(missing_ok=True)
    said = bench.log(outcomes[1])
    assert all(passed(outcome) for outcome in outcomes), said
    assert int(re.findall(r"others: (\d+)", said)[0]) >= 4, "the runner, two workers, another cell"
    reached = re.findall("^reached: .*", said, re.MULTILINE)
    assert not [line for line in reached if landlock() >= LANDLOCK_SIGNALS or "signal" not in line], said
    assert len(re.findall("^refused: file", said, re.MULTILINE)) > 2 * 4 * 3


def test_without_landlock_it_can_which_the_doctor_says(bare: Bench) -> None:
    """What the test above would find if the wall were not there."""
    (outcome,) = bare.do("reach_other_processes")
    if os.getuid() == 0:
        assert re.findall("^reached: file", bare.log(outcome), re.MULTILINE)
    assert re.findall("^reached: .* signal", bare.log(outcome), re.MULTILINE)


@pytest.mark.parametrize("deed", ["kill_the_worker", "kill_it_with_a_grandchild", "stop_the_worker"])
def test_a_cell_cannot_end_or_stop_its_worker_and_fails(bench: Bench, deed: str) -> None:
    needs(LANDLOCK_SIGNALS)
    failed, after = bench.do(deed, "nothing")
    assert [case.state for case in failed.cases] == [State.FAIL]
    assert "Operation not permitted" in failed.cases[0].message
    assert passed(after)
    assert len([event for event in bench.events if isinstance(event, WorkerReady)]) == 1


@pytest.mark.parametrize("deed", ["kill_the_worker", "kill_it_with_a_grandchild"])
def test_a_cell_that_kills_each_of_its_workers_has_crashed_and_the_next_is_whole(bare: Bench, deed: str) -> None:
    crashed, after = bare.do(deed, "nothing")
    assert (crashed.infra, crashed.attempts) == ("", 2)
    assert crashed.death == Death(worker="killed by SIGKILL")
    assert passed(after)


def test_without_landlock_a_cell_that_stops_its_worker_is_timed_out_by_the_host(bare: Bench) -> None:
    late, after = bare.do("stop_the_worker", "nothing", timeout_s=0.5)
    assert late.death
    assert late.death.timed_out_after_s >= 2.5
    assert passed(after)


def test_the_first_process_of_a_container_hears_no_signal_of_its_cell(first_process: Bench) -> None:
    outcome, after = first_process.do("send_every_signal_to_the_worker", "nothing")
    assert passed(outcome)
    assert passed(after)
    assert len([event for event in first_process.events if isinstance(event, WorkerReady)]) == 1


def test_the_signals_of_a_cell_are_its_own(bench: Bench) -> None:
    """What its worker puts aside, a cell has: Ctrl-C as an exception, and the stack of a crash."""
    interrupted, crashed = bench.do("interrupt_itself", "segfault")
    assert interrupted.death == Death(signal="SIGINT")
    assert "KeyboardInterrupt" in bench.log(interrupted)
    assert "in segfault" in bench.log(crashed)


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        ("report_nested_brackets", "the cell wrote what is no report into its result pipe"),
        ("report_some_nested_brackets", "the cell wrote what is no report into its result pipe"),
        ("report_an_unknown_state", "what it reported is no result: state: Input should be"),
        ("report_a_negative_duration", "what it reported is no result: duration_s: Input should be greater than"),
        ("report_a_duration_that_is_no_number", "the cell wrote what is no report into its result pipe"),
        ("report_numbers_that_swell", "the cell wrote what is no report into its result pipe"),
        ("report_a_thousand_overflows", "what it reported is no result: overflow: Tuple should have at most 256"),
        ("report_another_case", "the cell wrote what is no report into its result pipe"),
        ("report_without_an_end", "the cell wrote what is no report into its result pipe"),
        ("plan_300000_names", "the cell wrote what is no report into its result pipe"),
        ("know_nested_brackets", "its result cannot be written as JSON: maximum recursion depth exceeded"),
        ("know_nonsense", "its result cannot be written as JSON: 'int' object is not iterable"),
    ],
)
def test_a_cell_that_reports_nonsense_has_failed_once_and_the_next_is_whole(
    bench: Bench, deed: str, words: str
) -> None:
    failed, after = bench.do(deed, "nothing")
    assert [(case.name, case.state) for case in failed.cases] == [("test_deed", State.FAIL)], failed
    assert words in failed.cases[0].message
    assert (failed.attempts, failed.infra, failed.death) == (1, "", None)
    assert passed(after)
    assert len([event for event in bench.events if isinstance(event, WorkerReady)]) == 1, "and of the same worker"


def test_a_tree_of_folders_that_no_stack_can_follow_is_removed(bench: Bench) -> None:
    before = set(Path(os.environ.get("TMPDIR", "/tmp")).glob(f"{FOLDER}*"))
    outcome, after = bench.do("dig_deep", "nothing")
    assert passed(outcome)
    assert passed(after)
    assert len([event for event in bench.events if isinstance(event, WorkerReady)]) == 1
    assert set(Path(os.environ.get("TMPDIR", "/tmp")).glob(f"{FOLDER}*")) <= before


DEAF = """
    import sys, time
    print('{"ready": {"environment": {}, "import_s": 0.0}}', flush=True)
    time.sleep(600)
"""


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[Bench]:
    """A worker that reads nothing of what it is sent; a cell that is more than a pipe holds."""
    (tmp_path / "deaf.py").write_text(textwrap.dedent(DEAF))
    engine = LocalEngine(python_for=lambda _: Path(sys.executable), worker=tmp_path / "deaf.py", cases=CASES)
    yield Bench(engine, tmp_path)
    engine.close()


def large() -> object:
    one = cell("nothing")
    return order(type(one)(id=one.id, axes={"do": "x" * 300_000}, labels={}, load=one.load))


def on_start(deed: Callable[[], None]) -> Callable[[Event], None]:
    def watch(event: Event) -> None:
        if isinstance(event, CellStarted) and event.attempt == 1:
            threading.Timer(0.5, deed).start()

    return watch


def test_signals_end_a_runner_whose_workers_pipe_is_full(deaf: Bench) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    deaf.watch = on_start(twice)
    started = time.monotonic()
    with deaf.stop.on_signals():
        (outcome,) = deaf.run(large(), timeout_s=300.0)  # type: ignore[arg-type]
    assert outcome.not_run
    assert time.monotonic() - started < 10


def test_one_signal_is_enough_where_the_worker_takes_nothing(deaf: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "SEND_S", 1.0)
    deaf.watch = on_start(lambda: os.kill(os.getpid(), signal.SIGTERM))
    started = time.monotonic()
    with deaf.stop.on_signals():
        (outcome,) = deaf.run(large(), timeout_s=300.0)  # type: ignore[arg-type]
    assert outcome.not_run
    assert time.monotonic() - started < 10


def test_a_worker_that_takes_nothing_is_lost(deaf: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "SEND_S", 0.5)
    (outcome,) = deaf.run(large(), timeout_s=300.0)  # type: ignore[arg-type]
    assert outcome.infra == f"lost 2 workers during this cell: {channel.STALLED}"
    assert "it took nothing" in bench_log(deaf, outcome.log)


def bench_log(bench: Bench, place: str) -> str:
    return (bench.directory / place).read_text()
