"""kill -9 of the runner: what it had started ends, at the latest when the next run starts; and a run can be resumed.

All in one file: runs that start sweep what other dead runners left, and these tests would take it from each other.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from runner.engines.docker import RUN, DockerEngine
from runner.engines.local import LocalEngine, end_marked, marked
from tests.contract.bench import CASES, ROOT, WORKER
from tests.faults.kills import InDocker, Local, disturb, over_ray
from tests.ray import cluster

SCRIPT = Path(__file__).with_name("killed_runner.py")
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a runner with a sleeping cell; returns when the cell has started."""
    started = []

    def go(*arguments: str) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(SCRIPT), *arguments, str(tmp_path)]
        runner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        started.append(runner)
        assert runner.stdout
        assert runner.stdout.readline() == "started\n"
        time.sleep(0.5)  # the cell's grandchild too
        return runner

    yield go
    for runner in started:
        runner.kill()
        runner.wait()
        assert runner.stdout
        runner.stdout.close()
    local_engine().sweep()  # the folder of a killed runner's worker stays until the next run


def local_processes(runner: subprocess.Popen[str]) -> list[int]:
    return [pid for pid, mark in marked() if f"/{runner.pid}/" in mark]


def wait_until(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def local_engine() -> LocalEngine:
    return LocalEngine(python_for=lambda _: Path(sys.executable), worker=WORKER, cases=CASES)


def test_a_local_worker_its_cell_and_its_grandchild_end_by_themselves(start: Start) -> None:
    runner = start("local", "-", "-")
    assert len(local_processes(runner)) == 3
    runner.kill()
    runner.wait()
    assert wait_until(lambda: not local_processes(runner))


def test_a_local_worker_that_cannot_end_is_swept(start: Start) -> None:
    runner = start("local", "-", "-")
    pids = local_processes(runner)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    runner.kill()
    runner.wait()
    time.sleep(0.2)
    assert local_processes(runner) == pids
    ended = local_engine().sweep()
    assert {f"process {pid}" for pid in pids} <= set(ended)
    assert not local_processes(runner)


def test_a_sweep_leaves_a_living_run_alone(start: Start) -> None:
    runner = start("local", "-", "-")
    local_engine().sweep()
    assert len(local_processes(runner)) == 3
    runner.kill()
    runner.wait()
    end_marked(lambda mark: f"/{runner.pid}/" in mark)


@pytest.mark.docker
def test_containers_are_removed_by_the_next_sweep_and_not_before_their_runner_is_dead(
    start: Start, docker_client: docker.DockerClient, image: str
) -> None:
    run_id = f"killed-{os.getpid()}"
    engine = DockerEngine(docker_client, image_for=lambda _: image, run_id="next", worker=WORKER, cases=CASES)

    def containers() -> list[docker.models.containers.Container]:
        return docker_client.containers.list(all=True, filters={"label": f"{RUN}={run_id}"})

    runner = start("docker", image, run_id)
    (container,) = containers()
    engine.sweep()
    assert containers()
    runner.kill()
    runner.wait()
    assert f"container {container.name}" in engine.sweep()
    assert not containers()


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_table(tmp_path: Path) -> None:
    kills, wrong = disturb(tmp_path, Local(), kills=8, seed=7)
    assert not wrong
    assert kills["runner"] >= 2
    assert kills["worker"] >= 1


@pytest.mark.docker
def test_a_run_in_containers_that_are_killed_too(tmp_path: Path, image: str) -> None:
    kills, wrong = disturb(tmp_path, InDocker(image), kills=6, seed=5)
    assert not wrong
    assert kills["container"] >= 1
    assert kills["runner"] >= 1


@pytest.mark.ray
def test_a_run_over_a_cluster_whose_nodes_are_killed_too(tmp_path: Path) -> None:
    cluster.required()
    with over_ray(tmp_path) as place:
        kills, wrong = disturb(tmp_path, place, kills=6, seed=3)
    assert not wrong
    assert min(kills[kind] for kind in ("runner", "node", "worker")) >= 1
