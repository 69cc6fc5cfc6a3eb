"""kill -9 of the runner: its actors, their workers, and what those had started, end by themselves."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.bench import ROOT
from tests.ray import cluster

SCRIPT = Path(__file__).with_name("killed_driver.py")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def address(home: Path) -> Iterator[str]:
    with cluster.started(home, {}) as started:
        yield started.address


@pytest.fixture
def driver(address: str, home: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A runner in another process, with a cell in flight on the cluster."""
    command = [sys.executable, str(SCRIPT), address, str(tmp_path / "run")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        assert cluster.wait_until(lambda: len(cluster.workers(home)) == 3)  # worker, cell, grandchild
        yield process
        process.kill()


def test_a_killed_driver_leaves_no_actor_and_no_process(driver: Any, home: Path) -> None:
    assert cluster.actors(home)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert cluster.wait_until(lambda: not cluster.workers(home) and not cluster.actors(home)), (
        cluster.workers(home),
        cluster.actors(home),
    )
