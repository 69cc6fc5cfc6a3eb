"""Engines for the contract tests: one set of behaviours, every engine."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from runner.engines.base import Engine
from runner.engines.docker import RUN, DockerEngine
from runner.engines.local import LocalEngine, marked
from runner.engines.owner import Owner
from tests.contract.bench import CASES, WORKER, Bench, Harm

IMAGE = "attnmatrix-test:latest"


@pytest.fixture(scope="session")
def docker_client() -> Iterator[docker.DockerClient]:
    try:
        client = docker.from_env(timeout=60)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no Docker daemon answers: {error}")
    yield client
    client.close()


@pytest.fixture(scope="session")
def image_tar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python and pytest on a minimal Debian, made where it is not kept from before: no registry is needed."""
    kept = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "attnmatrix" / "test-image.tar"
    if not kept.exists():
        if not shutil.which("debootstrap") or os.getuid():
            pytest.skip("the test image is made with debootstrap, as root")
        root = tmp_path_factory.mktemp("image") / "root"
        packages = "--include=python3,python3-pytest,ca-certificates"
        command = ["debootstrap", "--variant=minbase", packages, "bookworm", str(root), "http://deb.debian.org/debian"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}")
        skip = [
            "--exclude=./var/cache",
            "--exclude=./var/lib/apt/lists",
            "--exclude=./usr/share/doc",
            "--exclude=./dev",
        ]
        subprocess.run(["tar", "-C", str(root), *skip, "-cf", str(partial), "."], check=True, timeout=300)
        partial.rename(kept)
        shutil.rmtree(root)
    return kept


@pytest.fixture(scope="session")
def image(docker_client: docker.DockerClient, request: pytest.FixtureRequest) -> str:
    try:
        docker_client.images.get(IMAGE)
    except docker.errors.ImageNotFound:
        repository, _, tag = IMAGE.partition(":")
        tar = request.getfixturevalue("image_tar")
        docker_client.api.import_image_from_file(str(tar), repository=repository, tag=tag)
    return IMAGE


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
        memory="256m",
        scratch="64m",
    )
    yield engine
    left = docker_client.containers.list(all=True, filters={"label": f"{RUN}={run_id}"})
    engine.close()
    assert not left, "containers were left behind"


@pytest.fixture(params=["local", pytest.param("docker", marks=pytest.mark.docker)])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(f"{request.param}_engine")
    return found


@pytest.fixture
def harm(request: pytest.FixtureRequest, engine: Engine, tmp_path: Path) -> Harm:
    if isinstance(engine, LocalEngine):

        def send(number: int) -> None:
            workers = [
                pid for pid, mark in marked() if mark.startswith(str(Owner.current())) and os.getpgid(pid) == pid
            ]
            os.kill(min(workers), number)  # the cell has a session of its own too, and a later pid

        return Harm(kill=lambda: send(signal.SIGKILL), freeze=lambda: send(signal.SIGSTOP))
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
