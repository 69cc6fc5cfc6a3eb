"""What every engine must make of what a cell can do; after each evil deed the next cell must be whole."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from runner import outcome as outcomes
from runner.model import CaseReported, CellStarted, Death, Event, How, State, WorkerReady
from runner.worker import LANDLOCK_SIGNALS, landlock
from tests.contract.bench import Bench, Harm, cell, order, passed


def test_a_cell_that_holds_passes(bench: Bench) -> None:
    (outcome,) = bench.do("nothing")
    assert passed(outcome)
    assert outcome.cases[0].name == "test_deed"
    assert outcome.attempts == 1
    assert outcome.log == ""
    assert outcome.environment["torch"] == ""


def test_what_a_case_knows_arrives_in_the_outcome(bench: Bench) -> None:
    (outcome,) = bench.run(order(cell("nothing", second="on")))
    first, second = outcome.cases
    assert (first.state, second.state) == (State.PASS, State.OVERFLOW)
    assert second.message == "indptr needs 6, has 2"
    (overflow,) = second.overflow
    assert (overflow.buffer, overflow.required, overflow.allocated, overflow.how) == ("indptr", 6, 2, How.RAISED)
    assert overflow.batch.query_lens == (320,)
    assert outcome.resolved == {"backend": "fake", "block_size": 16}


def test_a_false_assertion_fails_and_names_its_line(bench: Bench) -> None:
    failed, after = bench.do("assert_something_false", "nothing")
    assert failed.cases[0].state is State.FAIL
    assert "cases/deeds.py" in failed.cases[0].message
    assert failed.death is None
    assert passed(after)


@pytest.mark.parametrize(
    ("deed", "death", "message"),
    [
        ("segfault", Death(signal="SIGSEGV"), "killed by SIGSEGV"),
        ("abort", Death(signal="SIGABRT"), "killed by SIGABRT"),
        ("kill_itself", Death(signal="SIGKILL"), "killed by SIGKILL"),
        ("exit_3", Death(exit_code=3), "the process ended with exit code 3"),
    ],
)
def test_a_crash_takes_down_one_cell_and_is_named(bench: Bench, deed: str, death: Death, message: str) -> None:
    crashed, after = bench.do(deed, "nothing")
    assert crashed.death == death
    assert [(case.state, case.message) for case in crashed.cases] == [(State.CRASH, message)]
    assert crashed.attempts == 1
    assert passed(after)
    ready = [event for event in bench.events if isinstance(event, WorkerReady)]
    assert len(ready) == 2, "a worker in which something crashed serves no other cell"


def test_a_segfault_leaves_its_stack_in_the_log(bench: Bench) -> None:
    (crashed,) = bench.do("segfault")
    assert "Segmentation fault" in bench.log(crashed)
    assert "in segfault" in bench.log(crashed)


@pytest.mark.parametrize(
    ("isa", "state"),
    [("", State.INFRA), ("amx", State.CRASH)],
    ids=["before the ISA is known", "of a kernel whose ISA is known"],
)
def test_an_illegal_instruction_is_the_products_only_where_it_is_known_what_computes(
    bench: Bench, isa: str, state: State
) -> None:
    asked = cell("meet_an_illegal_instruction")
    (died,) = bench.run(order(replace(asked, axes={**asked.axes, "isa": isa})))
    assert died.death == Death(signal="SIGILL")
    assert [case.state for case in died.cases] == [state]
    assert died.resolved == ({"isa": isa} if isa else {}), "what was resolved is known of a process that died, too"
    found, reason = outcomes.of(died)
    assert found is state
    assert ("builds of torch and vLLM for this CPU" in reason) == (state is State.INFRA)


def test_the_case_after_a_crash_in_the_same_cell_did_not_run(bench: Bench) -> None:
    (crashed,) = bench.run(order(cell("segfault", second="on")))
    assert [case.state for case in crashed.cases] == [State.CRASH, State.NOT_RUN]


def test_an_exit_without_a_result_is_missing(bench: Bench) -> None:
    missing, after = bench.do("exit_0", "nothing")
    assert missing.death is None
    assert [case.state for case in missing.cases] == [State.MISSING]
    assert passed(after)


@pytest.mark.parametrize("deed", ["sleep", "sleep_with_a_grandchild", "ignore_signals_and_spin"])
def test_a_cell_past_its_limit_is_timed_out_by_its_worker(bench: Bench, deed: str) -> None:
    started = time.monotonic()
    late, after = bench.do(deed, "nothing", timeout_s=1.0)
    assert late.death == Death(timed_out_after_s=1.0)
    assert late.cases[0].state is State.TIMEOUT
    assert passed(after)
    assert time.monotonic() - started < 15


def test_a_cell_that_says_nothing_is_ended_before_its_limit_and_one_that_speaks_is_not(bench: Bench) -> None:
    silent, speaks = bench.do("sleep", "say_something_for_two_seconds", timeout_s=15.0, silence_s=1.0)
    assert silent.death
    assert silent.death.silent_for_s == 1.0
    assert 1.0 <= silent.death.timed_out_after_s < 5
    assert silent.cases[0].state is State.TIMEOUT
    assert "silent for 1 s" in silent.cases[0].message
    assert "in sleep" in bench.log(silent)
    assert passed(speaks)
    assert speaks.duration_s > 1.5


def test_a_timed_out_cell_shows_where_it_hung(bench: Bench) -> None:
    (late,) = bench.do("sleep", timeout_s=1.0)
    assert "in sleep" in bench.log(late)


def test_a_grandchild_that_holds_the_pipes_does_not_hold_up_the_cell(bench: Bench) -> None:
    outcome, after = bench.do("leave_a_grandchild", "nothing")
    assert passed(outcome)
    assert outcome.duration_s < 5
    assert passed(after)


def test_100_mb_of_output_pass_and_leave_a_short_log_with_both_ends(bench: Bench) -> None:
    loud, after = bench.do("print_100_mb", "nothing", timeout_s=60.0)
    assert passed(loud)
    assert passed(after)
    log = bench.log(loud)
    assert len(log) < 1024 * 1024 + 1000
    assert log.startswith("first words\n")
    assert log.endswith("last words\n")
    assert "bytes left out here]" in log


def test_output_of_a_cell_and_its_children_is_logged(bench: Bench) -> None:
    (outcome,) = bench.do("print_a_word")
    assert bench.log(outcome) == "a word on standard output\na word from a grandchild\n"
    assert outcome.log == f"cells/{outcome.cell.id}/attempt-1.log"


def test_output_that_looks_like_the_protocol_or_drives_a_terminal_is_only_text(bench: Bench) -> None:
    (outcome,) = bench.do("print_nonsense")
    assert passed(outcome)
    log = bench.log(outcome)
    assert '{"done": {}}' in log
    assert "\x1b" not in log
    assert "\u202e" not in log


def test_nothing_leaks_from_one_cell_to_the_next(bench: Bench) -> None:
    assert all(passed(outcome) for outcome in bench.do("leave_a_mark", "look_for_a_mark", "leave_a_mark"))


def on_start(do: str, harm: Callable[[], None]) -> Callable[[Event], None]:
    """Does harm a moment after a cell with that deed was started."""

    def watch(event: Event) -> None:
        if isinstance(event, CellStarted) and event.cell.startswith(do):
            threading.Timer(0.3, harm).start()

    return watch


def test_a_cell_whose_worker_is_killed_is_tried_twice_and_then_the_machines_fault(bench: Bench, harm: Harm) -> None:
    bench.watch = on_start("sleep", harm.kill)
    lost, after = bench.do("sleep", "nothing")
    if landlock() >= LANDLOCK_SIGNALS or bench.engine.name == "docker":
        assert lost.infra.startswith("lost 2 workers during this cell: ")
        assert "kill" in lost.infra.removeprefix("lost 2 workers during this cell: ").lower()
    else:  # it may have been the cell
        assert lost.death
        assert "kill" in lost.death.worker
    assert lost.attempts == 2
    assert "the worker was lost" in bench.log(lost)
    assert passed(after)
    assert [event.attempt for event in bench.events if isinstance(event, CellStarted)] == [1, 2, 1]


def test_a_worker_that_does_not_keep_its_time_is_killed(bench: Bench, harm: Harm) -> None:
    bench.watch = on_start("sleep", harm.freeze)
    late, after = bench.do("sleep", "nothing", timeout_s=0.5)
    assert late.death
    assert late.death.timed_out_after_s >= 2.5
    assert "was killed" in bench.log(late)
    assert passed(after)


def test_two_slots_share_the_cells_of_an_order(bench: Bench) -> None:
    outcomes = bench.run(order(*(cell("nothing", number=n) for n in range(8))), jobs=2)
    assert all(passed(outcome) for outcome in outcomes)
    started = [event for event in bench.events if isinstance(event, CellStarted)]
    assert len(started) == 8


def test_a_first_stop_lets_the_cell_in_flight_finish(bench: Bench) -> None:
    bench.watch = lambda event: bench.stop.request() if isinstance(event, CaseReported) else None
    first, *rest = bench.do("nothing", "nothing", "nothing")
    assert passed(first)
    assert all(outcome.not_run and outcome.attempts == 0 for outcome in rest)


def test_a_second_stop_ends_the_cell_in_flight(bench: Bench) -> None:
    def watch(event: object) -> None:
        if isinstance(event, CellStarted):
            bench.stop.request()
            threading.Timer(0.5, bench.stop.request).start()

    bench.watch = watch
    started = time.monotonic()
    outcomes = bench.do("sleep", "nothing", timeout_s=100.0)
    assert all(outcome.not_run for outcome in outcomes)
    assert time.monotonic() - started < 30


def test_the_cases_know_the_evidence_while_they_are_imported(bench: Bench) -> None:
    (outcome,) = bench.do("print_the_environment")
    assert "ATTNMATRIX_EVIDENCE=cpu\n" in bench.log(outcome)
