"""A Docker daemon of the test's own, killed in mid-run: the run ends soon, is whole, and leaves nothing behind."""

import contextlib
import gc
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
import requests

from runner.dispatch import Patience
from runner.engines.docker import RUN, DockerEngine
from runner.model import CellStarted, Event
from tests.contract.bench import CASES, WORKER, Bench, passed

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(280),
    # docker-py does not close a socket whose connect failed (docker/transport/unixconn.py).
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

RUN_ID = f"daemon-{os.getpid()}"


class Daemon:
    """dockerd with everything below one folder: the machine's own daemon is not touched."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.socket = folder, folder / "docker.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["dockerd", "--host", f"unix://{self.socket}", "--data-root", str(self.folder / "data")]
        command += ["--exec-root", str(self.folder / "exec"), "--pidfile", str(self.folder / "pid")]
        command += ["--bridge", "none", "--iptables=false", "--ip-forward=false", "--cgroup-parent", "attnmatrix-test"]
        # A killed daemon leaves these; the second is of its containerd, which it takes for alive while it is a zombie.
        for stale in ("pid", "exec/containerd/containerd.pid", "docker.sock"):
            (self.folder / stale).unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        for _ in range(300):
            with contextlib.suppress(requests.exceptions.RequestException), contextlib.closing(self.client()) as client:
                client.ping()
                return
            time.sleep(0.1)
        pytest.fail(f"dockerd did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def client(self) -> docker.DockerClient:
        return docker.DockerClient(base_url=f"unix://{self.socket}", timeout=60, version="1.41")  # asks nothing yet

    def end(self, number: int) -> None:
        if self.process:
            self.process.send_signal(number)
            self.process.wait(timeout=60)
        self.process = None


@pytest.fixture
def daemon(docker_client: docker.DockerClient, image: str) -> Iterator[Daemon]:
    if not shutil.which("dockerd") or os.getuid():
        pytest.skip("a daemon of the test's own needs dockerd and root")
    folder = Path(f"/var/tmp/attnmatrix-{os.getpid()}")  # a short path: sockets of containerd lie below
    folder.mkdir()
    daemon = Daemon(folder)
    try:
        daemon.start()
        with contextlib.closing(daemon.client()) as client:
            (loaded,) = client.images.load(b"".join(docker_client.images.get(image).save()))
            loaded.tag(image)
        yield daemon
    finally:
        if not daemon.process:
            daemon.start()  # it ends the containers that it finds, which nobody else would
        daemon.end(signal.SIGTERM)
        subprocess.run(["umount", "--recursive", str(folder / "data")], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


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
