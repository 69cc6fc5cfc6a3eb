"""What only holds without walls around a worker: a cell can reach its worker, and still nothing is left behind."""

from pathlib import Path

import pytest

from runner.engines.local import LocalEngine
from runner.model import WorkerReady
from tests.contract.bench import BROKEN_CASES, UNSERVED_CASES, WORKER, Bench, passed


@pytest.fixture
def bench(local_engine: LocalEngine, tmp_path: Path) -> Bench:
    return Bench(local_engine, tmp_path)


@pytest.mark.parametrize("deed", ["kill_the_worker", "kill_the_worker_with_a_grandchild"])
def test_a_cell_that_kills_its_worker_is_infra_and_the_next_is_whole(bench: Bench, deed: str) -> None:
    lost, after = bench.do(deed, "nothing")
    assert lost.infra == "lost 2 workers during this cell: killed by SIGKILL"
    assert passed(after)


def test_a_cell_that_stops_its_worker_is_timed_out_by_the_host(bench: Bench) -> None:
    late, after = bench.do("stop_the_worker", "nothing", timeout_s=0.5)
    assert late.death
    assert late.death.timed_out_after_s >= 2.5
    assert passed(after)


def test_cases_that_do_not_import_are_infra_with_the_reason(tmp_path: Path) -> None:
    import sys

    engine = LocalEngine(python_for=lambda _: Path(sys.executable), worker=WORKER, cases=BROKEN_CASES)
    bench = Bench(engine, tmp_path)
    for outcome in bench.do("nothing", "nothing", "nothing"):
        assert "the cases cannot be imported in environment test" in outcome.infra
        assert "a_module_that_nobody_has" in outcome.infra
    assert not [event for event in bench.events if isinstance(event, WorkerReady)]


def test_cases_that_do_not_serve_a_release_are_infra_with_their_sentence_alone(tmp_path: Path) -> None:
    import sys

    engine = LocalEngine(python_for=lambda _: Path(sys.executable), worker=WORKER, cases=UNSERVED_CASES)
    for outcome in Bench(engine, tmp_path).do("nothing", "nothing"):
        assert outcome.infra.endswith("vLLM 0.9.2 is older than the releases that the cases serve")
        assert "Traceback" not in outcome.infra


def test_a_python_that_is_not_there_is_infra_with_its_path(tmp_path: Path) -> None:
    engine = LocalEngine(python_for=lambda _: tmp_path / "bin" / "python", worker=WORKER, cases=BROKEN_CASES)
    (outcome,) = Bench(engine, tmp_path).do("nothing")
    assert outcome.infra == f"cannot start {tmp_path}/bin/python: No such file or directory"


def test_the_callers_environment_does_not_reach_a_cell(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_CALLER", "secret")
    (outcome,) = bench.do("print_the_environment")
    assert passed(outcome)
    assert "TMPDIR=" in bench.log(outcome)
    assert "A_SECRET" not in bench.log(outcome)
