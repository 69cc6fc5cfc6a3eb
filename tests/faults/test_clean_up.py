"""A real Docker daemon whose data root is a small disk of its own: the clean-up frees it, and tells what it freed."""

import contextlib
import io
import os
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from runner.ci import cleaning
from runner.environments import inventory
from runner.environments.image import RELEASE, _mark_used
from runner.errors import MachineError
from tests.faults.own_daemon import Daemon, started

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(280),
    # docker-py does not close a socket whose connect failed (docker/transport/unixconn.py).
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
MB = 1_000_000


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Daemon]:
    with started(disk="256m") as made:
        monkeypatch.setenv("DOCKER_HOST", f"unix://{made.socket}")
        monkeypatch.chdir(tmp_path)
        yield made


def build(client: docker.DockerClient, tag: str, *, base: str = "scratch", label: str = RELEASE) -> None:
    """An image with 20 MB of its own."""
    recipe = f"FROM {base}\nCOPY {tag} /\n".encode()
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for name, data in (("Dockerfile", recipe), (tag, os.urandom(20 * MB))):
            about = tarfile.TarInfo(name)
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
    context.seek(0)
    client.images.build(fileobj=context, custom_context=True, tag=f"{tag}:1", labels={label: "1"}, rm=True)
    time.sleep(0.01)


def test_images_go_until_the_daemons_own_disk_has_room(daemon: Daemon) -> None:
    data = daemon.folder / "data"

    def free() -> int:
        return shutil.disk_usage(data).free

    def names() -> list[str]:
        return sorted(tag.partition(":")[0] for one in client.images.list() for tag in one.tags)

    with contextlib.closing(daemon.client()) as client:
        for name in ("used", "held", "base"):
            build(client, name)
        build(client, "top", base="base:1")
        build(client, "theirs", label="of.others")
        client.containers.create("held:1", command="x")
        _mark_used(client, "used:1")
        told: list[str] = []
        before = free()
        cleaning.make_room((before + 10 * MB) / 1e9, told.append)
        assert names() == ["base", "held", "theirs", "used"], told  # that which is over the other one, and that alone
        assert before + 15 * MB < free() < before + 30 * MB
        assert told[-1].startswith(f"{data}: ")

        cleaning.make_room((free() + 10 * MB) / 1e9, told.append)
        assert names() == ["held", "theirs", "used"], told

        with pytest.raises(MachineError, match=f"{data}: .* are free; .* nothing of ours is left to remove"):
            cleaning.make_room((free() + 60 * MB) / 1e9, told.append)
        assert names() == ["held", "theirs"], "in use, and of others"
        assert any("held:1: kept, conflict" in line for line in told)

        build(client, "again")
        build(client, "over", base="again:1")
        freed = inventory.clean_images(client, tell=told.append)
        assert 35 * MB < freed < 45 * MB, "measured by the daemon: what they share counts once"
