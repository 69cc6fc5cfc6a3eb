"""The disk of a real Docker daemon is full: cells wait for room, and where there is none the machine is at fault."""

import contextlib
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from runner.dispatch import Patience
from runner.engines.docker import RUN, DockerEngine
from runner.model import Event, WorkerStarting
from tests.contract.bench import CASES, WORKER, Bench, passed
from tests.faults.own_daemon import Daemon, with_image

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(280),
    # docker-py does not close a socket whose connect failed (docker/transport/unixconn.py).
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

RUN_ID = f"full-{os.getpid()}"


@pytest.fixture(scope="module")
def daemon(docker_client: docker.DockerClient, image: str) -> Iterator[Daemon]:
    with with_image(docker_client, image, disk="900m") as started:
        yield started


@pytest.fixture
def bench(daemon: Daemon, image: str, tmp_path: Path) -> Iterator[Bench]:
    with contextlib.closing(daemon.client()) as client:
        engine = DockerEngine(client, image_for=lambda _: image, run_id=RUN_ID, worker=WORKER, cases=CASES)
        yield Bench(engine, tmp_path)
        assert not client.containers.list(all=True, filters={"label": f"{RUN}={RUN_ID}"})
    gc.collect()  # here, where the filter above still holds


@pytest.fixture
def ballast(daemon: Daemon) -> Iterator[Path]:
    """What fills the daemon's disk, to the last byte."""
    file = daemon.folder / "data" / "ballast"
    with file.open("wb", buffering=0) as filling, contextlib.suppress(OSError):
        while True:
            filling.write(b"\0" * (1 << 20))
    with file.open("ab", buffering=0) as filling, contextlib.suppress(OSError):
        while True:
            filling.write(b"\0" * 512)
    yield file
    file.unlink(missing_ok=True)


def test_cells_are_infra_with_the_reason_and_what_to_do(bench: Bench, ballast: Path) -> None:
    first, second = bench.do("nothing", "nothing")
    assert "Docker's disk is full" in first.infra
    assert "docker system df" in first.infra
    assert second.infra == first.infra
    assert len([event for event in bench.events if isinstance(event, WorkerStarting)]) == 3, "tried again, later"


def test_room_that_is_made_in_time_costs_nothing_but_time(bench: Bench, ballast: Path) -> None:
    def watch(event: Event) -> None:
        if isinstance(event, WorkerStarting):
            threading.Timer(0.5, lambda: ballast.unlink(missing_ok=True)).start()

    bench.watch = watch
    bench.patience = Patience(engine_tries=5, engine_wait_s=0.5)
    assert all(passed(outcome) for outcome in bench.do("nothing", "nothing"))
