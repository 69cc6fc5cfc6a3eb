"""Every cell gets exactly one outcome, whatever its worker or its engine does; on a scripted engine."""

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest

from runner import dispatch, outcome
from runner.engines.base import CannotStart, EngineGone, NotNow, WorkerLost
from runner.engines.fake import READY, Exit, FakeEngine, Silence, Step, passes
from runner.errors import MachineError
from runner.logs import LogStore
from runner.messages import Broken, Case, DeathBody, Done, Log, ProtocolError, Ready, Versions
from runner.model import (
    CaseReported,
    Cell,
    CellFinished,
    CellOutcome,
    CellStarted,
    Death,
    Event,
    Evidence,
    Order,
    State,
    WorkerReady,
    WorkerStarting,
)
from runner.stop import StopSignal
from tests.loads import SOLO

E = TypeVar("E", bound=Event)
GONE = EngineGone("the daemon does not answer")


def order(*ids: str, environment: str = "0.32.0") -> Order:
    cells = tuple(Cell(id=name, axes={"name": name}, labels={"name": name}, load=SOLO) for name in ids)
    return Order(environment=environment, evidence=Evidence.CPU, cells=cells)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = FakeEngine()
        self.stop = StopSignal()
        self.events: list[Event] = []
        self.patience = dispatch.Patience(grace_s=0.05, start_s=0.2, engine_wait_s=0.001)

    def run(self, *orders: Order, jobs: int = 1, timeout_s: float = 0.05, facts_of=None) -> dict[str, CellOutcome]:
        outcomes = dispatch.run(
            orders,
            engine=self.engine,
            jobs=jobs,
            timeout_s=timeout_s,
            on_event=self.see,
            stop=self.stop,
            logs=LogStore(self.folder),
            patience=self.patience,
            facts_of=facts_of or (lambda _: {}),
        )
        assert [o.cell.id for o in outcomes] == [cell.id for order in orders for cell in order.cells]
        finished = [event.outcome for event in self.seen(CellFinished)]
        assert sorted(o.cell.id for o in finished) == sorted(o.cell.id for o in outcomes)
        self.engine.close()
        return {outcome.cell.id: outcome for outcome in outcomes}

    def see(self, event: Event) -> None:
        self.events.append(event)

    def seen(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def done(cell: str, **death: object) -> Done:
    return Done(cell=cell, duration_s=1.5, death=DeathBody(**death) if death else None)  # type: ignore[arg-type]


def test_the_facts_of_a_cell_arrive_in_its_outcome(bench: Bench) -> None:
    def play(cell: str, _timeout_s: float) -> Iterator[Step]:
        yield Log(cell=cell, text="hello\n")
        yield Case(cell=cell, name="test_a", state=State.PASS, resolved={"backend": "x", "hybrid": True})
        yield Silence()
        yield Case(cell=cell, name="test_b", state=State.FAIL, message="no", resolved={"backend": "y"})
        yield done(cell, signal="SIGSEGV")

    bench.engine.play = play
    outcome = bench.run(order("a"))["a"]
    assert [(case.name, case.state) for case in outcome.cases] == [("test_a", State.PASS), ("test_b", State.FAIL)]
    assert outcome.death == Death(signal="SIGSEGV")
    assert outcome.resolved == {"backend": "y", "hybrid": True}
    assert outcome.duration_s == 1.5
    assert outcome.evidence is Evidence.CPU
    assert outcome.log == "cells/a/attempt-1.log"
    assert abs((datetime.now(UTC) - datetime.fromisoformat(outcome.ended_at)).total_seconds()) < 60
    assert (bench.folder / outcome.log).read_text() == "hello\n"
    assert outcome.environment == {
        "vllm": "",
        "flashinfer": "0",
        "torch": "0",
        "image_digest": "sha256:fake",
        "base_digest": "",
        "gpu": "",
        "driver": "",
        "machine": "",
        "recipe_digest": "",
        "hashes": "",
        "candidate": "",
        "cases_digest": "",
    }
    assert [type(event) for event in bench.events] == [
        WorkerStarting,
        WorkerReady,
        CellStarted,
        CaseReported,
        CaseReported,
        CellFinished,
    ]


def test_a_worker_is_told_the_cell_and_nothing_of_the_host(bench: Bench) -> None:
    bench.run(order("a"), timeout_s=7.0)
    (told,) = bench.engine.workers[0].told
    assert set(told) == {"run"}
    assert told["run"]["timeout_s"] == 7.0
    assert set(told["run"]["cell"]) == {"id", "axes", "load", "evidence"}
    assert told["run"]["cell"]["load"]["max_num_batched_tokens"] == 36000


def test_one_warm_worker_serves_all_cells_of_an_order(bench: Bench) -> None:
    bench.run(order("a", "b", "c"))
    assert len(bench.engine.workers) == 1


def test_another_environment_gets_a_worker_of_its_own(bench: Bench) -> None:
    bench.run(order("a", "b"), order("c", "d", environment="0.33.0"))
    assert [worker.environment for worker in bench.engine.workers] == ["0.32.0", "0.33.0"]
    assert all(worker.killed for worker in bench.engine.workers)


def test_orders_that_differ_in_evidence_share_a_worker_unless_one_wants_the_device(bench: Bench) -> None:
    cpu, device = order("a"), replace(order("c"), evidence=Evidence.DEVICE)
    emulated = replace(order("b"), evidence=Evidence.EMULATED)
    outcomes = bench.run(cpu, emulated, device)
    assert len(bench.engine.workers) == 2
    assert [outcomes[name].evidence for name in "abc"] == [Evidence.CPU, Evidence.EMULATED, Evidence.DEVICE]


def test_an_environment_that_holds_another_release_runs_nothing_under_the_wrong_name(bench: Bench) -> None:
    other = Ready(environment=Versions(vllm="0.31.0+cpu", torch="0", flashinfer="0"), import_s=0.0)
    bench.engine = FakeEngine(openings=[[other]])
    assert "holds vllm 0.31.0" in bench.run(order("a"))["a"].infra


def test_a_package_that_was_built_again_holds_its_release(bench: Bench) -> None:
    again = Ready(environment=Versions(vllm="0.32.0.post2+cpu", torch="0", flashinfer="0"), import_s=0.0)
    bench.engine = FakeEngine(openings=[[again]])
    assert "holds vllm" not in bench.run(order("a"))["a"].infra


def test_what_the_host_knows_of_an_environment_is_in_every_outcome(bench: Bench) -> None:
    outcomes = bench.run(order("a"), facts_of=lambda order: {"recipe_digest": f"of {order.environment}"})
    assert outcomes["a"].environment["recipe_digest"] == "of 0.32.0"


def test_no_cells_start_nothing(bench: Bench) -> None:
    assert bench.run() == {}
    assert bench.run(order()) == {}
    assert bench.engine.workers == []


def test_there_are_no_more_workers_than_cells(bench: Bench) -> None:
    bench.run(order("a", "b"), jobs=8)
    assert len(bench.engine.workers) <= 2


def test_slots_share_one_order(bench: Bench) -> None:
    both = threading.Barrier(2, timeout=5)

    def play(cell: str, timeout_s: float) -> Iterable[Step]:
        if cell in "ab":
            both.wait()  # only two slots at once can pass
        return passes(cell, timeout_s)

    bench.engine.play = play
    outcomes = bench.run(order("a", "b", "c", "d"), jobs=2)
    assert not [o for o in outcomes.values() if o.infra or o.not_run]


def test_slots_spread_over_orders(bench: Bench) -> None:
    queue = dispatch.Queue([order("a", "b", "c"), order("d", "e")])
    first, second = queue.take(None), queue.take(None)
    assert first
    assert second
    assert (first.cell.id, second.cell.id) == ("a", "d")
    taken = [queue.take(0), queue.take(1), queue.take(0), queue.take(1), queue.take(0)]
    assert [task and task.cell.id for task in taken] == ["b", "e", "c", None, None]


@pytest.mark.parametrize("loss", [Exit(), ProtocolError("nonsense"), Done(cell="z", duration_s=0, death=None), READY])
def test_a_cell_whose_worker_is_lost_once_is_tried_again_on_a_fresh_one(bench: Bench, loss: Step) -> None:
    tries = iter([[Case(cell="a", name="old", state=State.FAIL), loss], [done("a")]])
    bench.engine.play = lambda cell, t: next(tries) if cell == "a" else passes(cell, t)
    outcomes = bench.run(order("a", "b"))
    assert outcomes["a"] == CellOutcome(
        cell=outcomes["a"].cell,
        evidence=Evidence.CPU,
        duration_s=1.5,
        ended_at=outcomes["a"].ended_at,
        environment=outcomes["a"].environment,
        attempts=2,
    )
    assert len(bench.engine.workers) == 2
    assert "the worker was lost" in (bench.folder / "cells/a/attempt-1.log").read_text()


def test_a_cell_that_loses_two_workers_is_infra_and_the_rest_is_whole(bench: Bench) -> None:
    bench.engine.play = lambda cell, t: [Exit("exit code 137 (killed)")] if cell == "a" else passes(cell, t)
    outcomes = bench.run(order("a", "b"))
    assert outcomes["a"].infra == "lost 2 workers during this cell: exit code 137 (killed)"
    assert outcomes["a"].attempts == 2
    assert outcomes["a"].log == "cells/a/attempt-2.log"
    assert not outcomes["b"].infra
    assert len(bench.engine.workers) == 3


OPEN = Ready(environment=Versions(), import_s=0.0, guarded=False)
"""Of a worker that a cell can end."""


@pytest.mark.parametrize(
    ("losses", "reason"),
    [
        ([Exit("killed by SIGKILL"), Exit("killed by SIGKILL")], "killed by SIGKILL"),
        ([Exit("killed by SIGKILL"), ProtocolError("nonsense")], "killed by SIGKILL; then it sent nonsense"),
    ],
)
def test_a_cell_that_can_end_its_workers_and_loses_two_has_crashed(
    bench: Bench, losses: list[Step], reason: str
) -> None:
    bench.engine.openings = [[OPEN]] * 3
    bench.engine.__post_init__()
    left = iter(losses)
    bench.engine.play = lambda cell, t: [next(left)] if cell == "a" else passes(cell, t)
    outcomes = bench.run(order("a", "b"))
    assert (outcomes["a"].death, outcomes["a"].infra) == (Death(worker=reason), "")
    assert outcome.of(outcomes["a"]) == (State.CRASH, f"its worker died 2 times while this cell ran: {reason}")
    assert not outcomes["b"].death


def test_a_device_that_breaks_is_the_machines_also_where_a_cell_can_end_its_worker(bench: Bench) -> None:
    bench.engine.openings = [[OPEN]] * 2
    bench.engine.__post_init__()
    bench.engine.play = lambda cell, t: [WorkerLost("the GPU is off the bus")]
    found = bench.run(order("a"))["a"]
    assert found.infra.startswith("lost 2 workers during this cell")
    assert found.death is None


def test_a_worker_that_does_not_keep_the_time_is_killed_and_the_cell_timed_out(bench: Bench) -> None:
    bench.engine.play = lambda cell, t: [] if cell == "a" else passes(cell, t)
    outcomes = bench.run(order("a", "b"))
    death = outcomes["a"].death
    assert death
    assert death.timed_out_after_s >= 0.1
    assert outcomes["a"].attempts == 1
    assert not outcomes["b"].death
    assert [worker.killed for worker in bench.engine.workers] == [True, True]


def test_talking_does_not_extend_a_workers_time(bench: Bench) -> None:
    bench.engine.play = lambda cell, t: [Log(cell=cell, text="x")] * 200_000
    started = time.monotonic()
    outcome = bench.run(order("a"))["a"]
    assert outcome.death
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("opening", "reason"),
    [
        ([Broken(reason="No module named 'torch'")], "cases cannot be imported in environment 0.32.0: No module named"),
        ([CannotStart("no such image: x")], "no such image: x"),
        ([], "no worker was ready within 0.2 s"),
    ],
)
def test_an_order_that_no_worker_can_serve_is_infra_and_others_are_whole(
    bench: Bench, opening: list[Step], reason: str
) -> None:
    bench.engine = FakeEngine(openings=[opening])
    outcomes = bench.run(order("a", "b", "c"), order("d", environment="0.33.0"))
    assert {reason in outcomes[name].infra for name in "abc"} == {True}
    assert outcomes["a"].attempts == 0
    assert not outcomes["d"].infra
    assert len(bench.seen(WorkerStarting)) == 2


def test_a_candidate_that_cannot_be_imported_is_the_products_and_its_release_is_none_the_worse(bench: Bench) -> None:
    bench.engine = FakeEngine(openings=[[Broken(reason="ImportError: no c in vllm/a.py")]])
    words = "patch fix.patch 0123456789abcdef over 0.32.0"
    facts = {"candidate": words}
    outcomes = bench.run(
        order("a", "b", environment="fix"), order("c"), facts_of=lambda one: facts if one.environment == "fix" else {}
    )
    for name in "ab":
        (case,) = outcomes[name].cases
        assert (case.name, case.state, outcomes[name].infra) == ("import", State.FAIL, "")
        assert case.message.startswith(
            "the cases cannot be imported in environment fix: ImportError: no c in vllm/a.py"
        )
        assert case.message.endswith(f"It is {words}, and that release can be imported.")
        assert outcomes[name].environment["candidate"] == words
    assert not outcomes["c"].cases or outcomes["c"].cases[0].state is not State.FAIL


def test_a_worker_lost_before_it_is_ready_is_replaced_once(bench: Bench) -> None:
    bench.engine = FakeEngine(openings=[[Exit("killed by SIGSEGV")]])
    assert not bench.run(order("a"))["a"].infra
    bench.engine = FakeEngine(openings=[[Exit("killed by SIGSEGV")]] * 2)
    bench.events.clear()
    outcomes = bench.run(order("a", "b"))
    assert {o.infra for o in outcomes.values()} == {"no worker became ready: killed by SIGSEGV"}


def test_an_engine_that_comes_back_in_time_loses_nothing(bench: Bench) -> None:
    bench.engine = FakeEngine(openings=[[GONE], [GONE]])
    assert not bench.run(order("a"))["a"].infra


def test_what_cannot_be_started_now_is_started_later(bench: Bench) -> None:
    bench.engine = FakeEngine(openings=[[NotNow("the disk is full")], [NotNow("a conflict")]])
    assert not bench.run(order("a"))["a"].infra


def test_what_cannot_be_started_later_either_ends_its_order_alone(bench: Bench) -> None:
    bench.engine = FakeEngine(openings=[[NotNow("the disk is full")]] * 3)
    outcomes = bench.run(order("a", "b"), order("c", environment="0.33.0"))
    assert [outcomes[name].infra for name in "abc"] == ["the disk is full", "the disk is full", ""]
    assert len(bench.seen(WorkerStarting)) == 3 + 1


def test_an_engine_that_stays_gone_ends_the_run_with_one_reason(bench: Bench) -> None:
    bench.engine = FakeEngine(
        play=lambda cell, t: [GONE] if cell == "b" else passes(cell, t), openings=[[READY]] + [[GONE]] * 100
    )
    outcomes = bench.run(order("a", "b", "c"), order("d", environment="0.33.0"))
    assert not outcomes["a"].infra
    assert {outcomes[name].infra for name in "bcd"} == {str(GONE)}
    assert len(bench.seen(WorkerStarting)) == 1 + 3


def test_a_first_stop_finishes_the_cell_in_flight(bench: Bench) -> None:
    def play(cell: str, _timeout_s: float) -> Iterable[Step]:
        bench.stop.request()
        return [Silence(), done(cell)]

    bench.engine.play = play
    outcomes = bench.run(order("a", "b"))
    assert outcomes["a"].duration_s == 1.5
    assert not outcomes["a"].not_run
    assert outcomes["b"].not_run


def test_a_first_stop_does_not_wait_for_imports(bench: Bench) -> None:
    bench.engine = FakeEngine(openings=[[]])
    bench.patience = dispatch.Patience(start_s=60)
    threading.Timer(0.1, bench.stop.request).start()
    started = time.monotonic()
    assert bench.run(order("a"))["a"].not_run
    assert time.monotonic() - started < 5


def test_a_second_stop_ends_the_cell_in_flight(bench: Bench) -> None:
    def play(_cell: str, _timeout_s: float) -> Iterable[Step]:
        bench.stop.request()
        bench.stop.request()
        return []

    bench.engine.play = play
    outcomes = bench.run(order("a", "b"), timeout_s=60)
    assert outcomes["a"].not_run
    assert outcomes["b"].not_run


def test_a_normal_end_is_not_a_stop(bench: Bench) -> None:
    bench.run(order("a"))
    assert not bench.stop.requested


def test_ctrl_c_and_sigterm_are_requests_to_stop_while_it_is_listened_to() -> None:
    stop = StopSignal()
    before = signal.getsignal(signal.SIGINT)
    with stop.on_signals():
        os.kill(os.getpid(), signal.SIGINT)
        assert (stop.requested, stop.killed) == (True, False)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.killed
    assert signal.getsignal(signal.SIGINT) is before


def test_trouble_of_a_subscriber_ends_the_run_and_is_told(bench: Bench) -> None:
    def see(event: Event) -> None:
        if isinstance(event, CellStarted):
            raise MachineError("disk full")

    bench.see = see  # type: ignore[method-assign]
    with pytest.raises(MachineError, match="disk full"):
        bench.run(order("a", "b"), jobs=2)
    bench.engine.close()


def test_a_worker_that_reports_without_end_is_not_believed(bench: Bench) -> None:
    case = Case(cell="a", name="again", state=State.PASS)
    bench.engine.play = lambda cell, t: [case] * (dispatch.CASES_LIMIT + 1) + [done(cell)]
    outcome = bench.run(order("a"), timeout_s=60)["a"]
    assert "a case message that does not belong to this cell" in outcome.infra


def test_outcomes_that_are_not_kept_go_to_the_events_alone_each_once(bench: Bench) -> None:
    def watch(event: Event) -> None:
        bench.see(event)
        if isinstance(event, CellFinished) and event.outcome.cell.id == "b":
            bench.stop.request()

    cells = order("a", "b", "c", "d")
    kept = dispatch.run(
        [cells],
        engine=bench.engine,
        jobs=1,
        timeout_s=0.05,
        on_event=watch,
        stop=bench.stop,
        logs=LogStore(bench.folder),
        keep=False,
    )
    assert kept == ()
    finished = [(event.outcome.cell.id, event.outcome.not_run) for event in bench.seen(CellFinished)]
    assert finished == [("a", False), ("b", False), ("c", True), ("d", True)]
