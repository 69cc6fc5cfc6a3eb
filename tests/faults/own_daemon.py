"""A Docker daemon of the tests' own, which they may kill, and whose disk they may fill."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
import requests


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


@contextlib.contextmanager
def with_image(docker_client: docker.DockerClient, image: str, *, disk: str = "") -> Iterator[Daemon]:
    """A daemon that has the image; `disk`, such as 900m, is the size of a file system of its own for its data."""
    with started(disk=disk) as daemon:
        with contextlib.closing(daemon.client()) as client:
            (loaded,) = client.images.load(b"".join(docker_client.images.get(image).save()))
            loaded.tag(image)
        yield daemon


@contextlib.contextmanager
def started(*, disk: str = "") -> Iterator[Daemon]:
    """A daemon that has no image."""
    if not shutil.which("dockerd") or os.getuid():
        pytest.skip("a daemon of the test's own needs dockerd and root")
    folder = Path(f"/var/tmp/attnmatrix-{os.getpid()}")  # a short path: sockets of containerd lie below
    (folder / "data").mkdir(parents=True)
    if disk:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk}", "tmpfs", str(folder / "data")], check=True)
    daemon = Daemon(folder)
    try:
        daemon.start()
        yield daemon
    finally:
        if not daemon.process:
            daemon.start()  # it ends the containers that it finds, which nobody else would
        daemon.end(signal.SIGTERM)
        subprocess.run(["umount", "--recursive", str(folder / "data")], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)
