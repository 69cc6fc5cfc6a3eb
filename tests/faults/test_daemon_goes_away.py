"""A Docker daemon of the test's own, killed in mid-run: the run ends soon, is whole, and leaves nothing behind."""

import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from runner.dispatch import Patience
from runner.engines.docker import RUN, DockerEngine
from runner.model import CellStarted, Event
from tests.contract.bench import CASES, WORKER, Bench, passed
from tests.faults.own_daemon import Daemon, with_image

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(280),
    # docker-py does not close a socket whose connect failed (docker/transport/unixconn.py).
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

RUN_ID = f"daemon-{os.getpid()}"


@pytest.fixture
def daemon(docker_client: docker.DockerClient, image: str) -> Iterator[Daemon]:
    with with_image(docker_client, image) as started:
        yield started


@pytest.fixture
def bench(daemon: Daemon, image: str, tmp_path: Path) -> Iterator[Bench]:
    with contextlib.closing(daemon.client()) as client:
        engine = DockerEngine(client, image_for=lambda _: image, run_id=RUN_ID, worker=WORKER, cases=CASES)
        yield Bench(engine, tmp_path)
    gc.collect()  # here, where the filter above still holds


def left(daemon: Daemon) -> list[docker.models.containers.Container]:
    with contextlib.closing(daemon.client()) as client:
        return client.containers.list(all=True, filters={"label": f"{RUN}={RUN_ID}"})


def test_the_rest_of_the_run_is_infra_with_one_reason_and_soon(daemon: Daemon, bench: Bench) -> None:
    def watch(event: Event) -> None:
        if isinstance(event, CellStarted) and event.cell.startswith("sleep"):
            threading.Timer(0.5, lambda: daemon.end(signal.SIGKILL)).start()

    bench.watch = watch
    started = time.monotonic()
    first, *rest = bench.do("nothing", "sleep", "nothing", "nothing", timeout_s=100.0)
    assert time.monotonic() - started < 40
    assert passed(first)
    assert {outcome.infra for outcome in rest} == {rest[0].infra}
    assert "the Docker daemon does not answer" in rest[0].infra
    daemon.start()
    bench.engine.close()
    assert not left(daemon)


def test_a_daemon_that_comes_back_in_time_costs_nothing_but_time(daemon: Daemon, bench: Bench) -> None:
    def restart() -> None:
        daemon.end(signal.SIGKILL)
        daemon.start()

    def watch(event: Event) -> None:
        if isinstance(event, CellStarted) and event.attempt == 1 and event.cell.startswith("sleep"):
            threading.Timer(0.5, restart).start()

    bench.watch = watch
    bench.patience = Patience(engine_tries=8, engine_wait_s=0.5)
    first, slept, *rest = bench.do("nothing", "sleep_a_second", "nothing", timeout_s=100.0)
    assert all(passed(outcome) for outcome in (first, slept, *rest))
    assert slept.attempts == 2
    bench.engine.close()
    assert not left(daemon)
