"""Engines for the contract tests: one set of behaviours, every engine."""

import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import docker
import pytest

from runner.engines.base import Engine
from runner.engines.docker import RUN, DockerEngine
from runner.engines.local import LocalEngine, marked
from runner.engines.owner import Owner
from runner.engines.walls import Walls
from tests.contract.bench import CASES, ROOT, WORKER, Bench, Harm, workers_among
from tests.ray import cluster

BASE, IMAGE = "attnmatrix-base:bookworm", "attnmatrix-test:latest"


@pytest.fixture(scope="session")
def image(docker_client: docker.DockerClient) -> str:
    """The project's base image and this environment's pytest: made without a registry or an index, then kept."""
    try:
        docker_client.images.get(IMAGE)
    except docker.errors.ImageNotFound:
        made = subprocess.run([ROOT / "containers" / "make-base.sh"], check=False, capture_output=True, text=True)
        if made.returncode:
            (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no base image: {made.stderr}")
        docker_client.images.build(fileobj=build_context(), custom_context=True, tag=IMAGE, rm=True, forcerm=True)
    return IMAGE


def build_context() -> io.BytesIO:
    """pytest and what it needs are pure Python: their files are copied as they are."""
    context = io.BytesIO()
    recipe = f"FROM {BASE}\nCOPY packages /usr/lib/python3/dist-packages\n".encode()
    with tarfile.open(fileobj=context, mode="w") as tar:
        head = tarfile.TarInfo("Dockerfile")
        head.size = len(recipe)
        tar.addfile(head, io.BytesIO(recipe))
        for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
            for file in metadata.files(name) or []:
                if ".." not in file.parts and file.suffix != ".pyc":
                    tar.add(file.locate(), f"packages/{file}")
    context.seek(0)
    return context


@pytest.fixture
def local_engine() -> Iterator[LocalEngine]:
    engine = LocalEngine(python_for=lambda _: Path(sys.executable), worker=WORKER, cases=CASES)
    yield engine
    mine = str(Owner.current())
    left = [pid for pid, mark in marked() if mark.startswith(mine)]
    engine.close()
    assert not left, "processes of a worker were left behind"


@pytest.fixture
def docker_engine(docker_client: docker.DockerClient, image: str, tmp_path: Path) -> Iterator[DockerEngine]:
    run_id = run_id_for(tmp_path)
    engine = DockerEngine(
        docker_client,
        image_for=lambda _: image,
        run_id=run_id,
        worker=WORKER,
        cases=CASES,
        walls=Walls(memory="256m", scratch="64m"),
    )
    yield engine
    left = docker_client.containers.list(all=True, filters={"label": f"{RUN}={run_id}"})
    engine.close()
    assert not left, "containers were left behind"


@pytest.fixture(scope="module")  # a process joins one cluster at a time, and other modules have their own
def ray_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the nodes of a cluster of two keep; this process has joined the cluster."""
    cluster.required()
    from runner.engines import ray_cluster

    home = tmp_path_factory.mktemp("home")
    with cluster.started(home, {}, {}) as started:
        ray_cluster.connect(started.address)
        yield home
        ray_cluster.disconnect()


@pytest.fixture
def ray_engine(ray_home: Path) -> Iterator[Engine]:
    engine = cluster.engine()
    yield engine
    left = cluster.workers(ray_home)
    engine.close()
    assert not left, "processes of a worker were left behind"
    assert cluster.wait_until(lambda: not cluster.actors(ray_home)), "actors were left behind"


@pytest.fixture(params=["local", *(pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("docker", "ray"))])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(f"{request.param}_engine")
    return found


@pytest.fixture
def harm(request: pytest.FixtureRequest, engine: Engine, tmp_path: Path) -> Harm:
    if isinstance(engine, LocalEngine):

        def send(number: int) -> None:
            workers = workers_among(pid for pid, mark in marked() if mark.startswith(str(Owner.current())))
            os.kill(workers[0], number)

        return Harm(kill=lambda: send(signal.SIGKILL), freeze=lambda: send(signal.SIGSTOP))
    if engine.name == "ray":
        home = request.getfixturevalue("ray_home")

        def send_there(number: int) -> None:
            os.kill(workers_among(pid for pid, _ in cluster.workers(home))[0], number)

        return Harm(kill=lambda: send_there(signal.SIGKILL), freeze=lambda: send_there(signal.SIGSTOP))
    client = request.getfixturevalue("docker_client")

    def container() -> docker.models.containers.Container:
        (found,) = client.containers.list(filters={"label": f"{RUN}={run_id_for(tmp_path)}"})
        return found

    return Harm(kill=lambda: container().kill(), freeze=lambda: container().pause())


def run_id_for(folder: Path) -> str:
    return f"test-{os.getpid()}-{folder.name}"


@pytest.fixture
def bench(engine: Engine, tmp_path: Path) -> Bench:
    return Bench(engine, tmp_path)
