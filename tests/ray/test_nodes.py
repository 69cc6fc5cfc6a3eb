"""Nodes that die, fall silent, cannot do what they offer, or are not there: nothing is lost and nothing is doubled."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.engines.parcel import pack
from runner.model import CellFinished, CellOutcome, CellStarted, Evidence, Order, WorkerReady
from tests.contract.bench import CASES, ROOT, Bench, cell, order, passed
from tests.ray import cluster


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def nodes(home: Path) -> Iterator[Any]:
    """Two nodes with a CPU each; one offers an sm100."""
    from runner.engines import ray_cluster

    with cluster.started(home, {"resources": {"sm100": 1}}, {}) as started:
        ray_cluster.connect(started.address)
        yield started
        ray_cluster.disconnect()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def bench(nodes: Any, home: Path, said: list[str], tmp_path: Path) -> Iterator[Bench]:
    engine = cluster.engine(say=said.append)
    yield Bench(engine, tmp_path)
    engine.close()
    assert not cluster.workers(home)
    assert cluster.wait_until(lambda: not cluster.actors(home))


def finished(bench: Bench) -> Counter[str]:
    return Counter(event.outcome.cell.id for event in bench.events if isinstance(event, CellFinished))


def on_device(*cells: Any, arch: str) -> Order:
    cells = tuple(replace(one, axes={**one.axes, "arch": arch}) for one in cells)
    return replace(order(*cells), evidence=Evidence.DEVICE)


def test_a_node_that_dies_loses_and_doubles_no_cell(nodes: Any, home: Path, bench: Bench) -> None:
    doomed = cluster.add(nodes, home, num_cpus=2)
    assert cluster.wait_until(lambda: len(alive()) == 4)
    ready: set[int] = set()

    def watch(event: object) -> None:
        if isinstance(event, WorkerReady) and event.slot not in ready:
            ready.add(event.slot)
            if len(ready) == 4:  # each has a cell in flight then, or soon
                threading.Timer(0.5, nodes.remove_node, (doomed,), {"allow_graceful": False}).start()

    bench.watch = watch
    cells = [cell("sleep_a_second", number=n) for n in range(16)]
    outcomes = bench.run(order(*cells), jobs=4)
    assert all(passed(outcome) for outcome in outcomes), [outcome.infra for outcome in outcomes]
    assert finished(bench) == {one.id: 1 for one in cells}
    again = [outcome for outcome in outcomes if outcome.attempts == 2]
    assert 1 <= len(again) <= 2
    logs = [(bench.directory / "cells" / outcome.cell.id / "attempt-1.log").read_text() for outcome in again]
    assert all("[attnmatrix: the worker was lost: the node " in log for log in logs), logs


def alive() -> list[Any]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def test_a_node_that_falls_silent_is_lost_and_its_cell_no_timeout(bench: Bench, home: Path) -> None:
    frozen: list[int] = []

    def freeze() -> None:
        ((_, actor), *_) = cluster.workers(home)
        frozen.append(actor.pid)
        os.kill(actor.pid, signal.SIGSTOP)

    def watch(event: object) -> None:
        if isinstance(event, CellStarted) and event.attempt == 1:
            threading.Timer(0.3, freeze).start()

    bench.watch = watch
    started = time.monotonic()
    bench.patience = replace(bench.patience, grace_s=10.0)
    (outcome,) = bench.do("sleep_a_second", timeout_s=5.0)
    assert passed(outcome)
    assert outcome.attempts == 2
    assert 8 < time.monotonic() - started < 30
    assert len(frozen) == 1
    assert cluster.wait_until(lambda: not Path(f"/proc/{frozen[0]}").exists())


def test_an_arch_that_no_node_offers_is_infra_and_says_what_is_offered(bench: Bench) -> None:
    (outcome,) = bench.run(on_device(cell("nothing"), arch="sm90"))
    assert outcome.infra == "no node of the cluster offers sm90 as a resource; offered: sm100"


def test_cells_for_a_device_run_on_the_node_that_offers_it_one_at_a_time(bench: Bench, said: list[str]) -> None:
    outcomes = bench.run(on_device(*(cell("print_the_environment", number=n) for n in range(4)), arch="sm100"), jobs=1)
    assert all(passed(outcome) for outcome in outcomes)
    assert "ATTNMATRIX_EVIDENCE=device" in bench.log(outcomes[0])


def choosy(order: Order, *, bad: str) -> Callable[[Callable[[str], None]], Any]:
    """An opening that fails on one node, as where its disk is full."""
    plain = cluster.plainly(order)

    def opening(say: Callable[[str], None]) -> tuple[AbstractContextManager[Any], Order]:
        import ray

        here = ray.get_runtime_context().get_node_id()
        if bad in ("", here):
            raise RuntimeError("no space left on device")
        say("looked around")
        return plain(say)

    return opening


def with_bad(bad: str, said: list[str]) -> Any:
    from runner.engines.ray import RayEngine

    return RayEngine(
        parcel=pack({"runner": ROOT / "runner", "cases": CASES}),
        opening_for=lambda order: choosy(order, bad=bad),
        memory=cluster.BYTES_PER_WORKER,
        say=said.append,
    )


def test_a_node_that_cannot_start_a_worker_is_set_aside_and_another_one_does(
    nodes: Any, said: list[str], tmp_path: Path
) -> None:
    (offers,) = [node["NodeID"] for node in alive() if "sm100" in node["Resources"]]
    bench = Bench(with_bad(offers, said), tmp_path)
    outcomes = bench.run(order(*(cell("nothing", number=n) for n in range(6))), jobs=2)
    bench.engine.close()
    assert all(passed(outcome) for outcome in outcomes)
    assert [text.split(") ")[1] for text in said if "set aside" in text] == ["is set aside: no space left on device"]
    assert any(text.endswith(": looked around") for text in said)


def test_where_no_node_can_start_a_worker_cells_are_infra_with_the_reasons(
    nodes: Any, said: list[str], tmp_path: Path
) -> None:
    bench = Bench(with_bad("", said), tmp_path)
    outcomes: tuple[CellOutcome, ...] = bench.do("nothing", "nothing")
    bench.engine.close()
    for outcome in outcomes:
        assert outcome.infra.startswith("no node of the cluster can run this: ")
        assert outcome.infra.count("no space left on device") == 2


def test_a_node_has_the_sources_once_and_runs_them_and_not_ours(bench: Bench, home: Path) -> None:
    bench.do("nothing", "nothing")
    bench.do("nothing")
    (place,) = (home / "sources").iterdir()
    assert (place / "cases" / "deeds.py").read_bytes() == (CASES / "deeds.py").read_bytes()
    bench.watch = lambda event: seen.extend(commands(home)) if isinstance(event, CellStarted) else None
    seen: list[str] = []
    bench.do("sleep_a_second")
    assert any(str(place / "runner" / "worker.py") in command for command in seen)


def commands(home: Path) -> list[str]:
    return [Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid, _ in cluster.workers(home)]
