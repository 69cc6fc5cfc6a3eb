"""Which environments and images go, in which order, and on which disk; what is in use stays, and what it stands on."""

import contextlib
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError

from runner.ci import cleaning
from runner.environments import daemon, inventory, venv
from runner.environments.daemon import Daemon
from runner.environments.image import RELEASE
from runner.environments.inventory import Built
from runner.errors import MachineError, UsageError

GB = 1_000_000_000
NEVER = "0001-01-01T00:00:00Z"
"""What Docker 20.10 says of an image that was never tagged here."""


def built(name: str, idle: float, over: str = "") -> Built:
    return Built(kind="docker", name=name, release="1", state="whole", bytes=GB, age_s=99, idle_s=idle, over=over)


def order(*found: Built) -> list[str]:
    return [one.name for one in inventory.in_order(list(found))]


def test_what_was_used_longest_ago_goes_first() -> None:
    assert order(built("a", 1), built("b", 3), built("c", 2)) == ["b", "c", "a"]


def test_a_base_goes_after_all_that_is_laid_over_it_and_no_sooner_than_it_was_used() -> None:
    """The base was built long ago, but what is over it was used just now."""
    old = built("alone", 50)
    assert order(built("base", 90), built("top", 1, "base"), built("mid", 60, "base"), old) == [
        "mid", "alone", "top", "base",
    ]  # fmt: skip
    assert order(built("a", 90), built("b", 80, "a"), built("c", 70, "b")) == ["c", "b", "a"]
    assert set(order(built("a", 1, "b"), built("b", 2, "a"))) == {"a", "b"}, "a circle, which no build makes"


def stamp(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat().replace("+00:00", "123Z")  # nanoseconds


class Images:
    """A daemon's images of ours. Each takes a GB, and one that a container has is kept."""

    def __init__(self, held: str = "") -> None:
        self.held, self.there, self.filters = held, list[Any](), list[Any]()

    def add(self, name: str, layers: list[str], *, made: float, tagged: float | None = None) -> None:
        self.there.append(
            SimpleNamespace(
                tags=[name], id=f"sha256:{name}", labels={RELEASE: "1"},
                attrs={"Created": stamp(made), "Size": GB, "RootFS": {"Type": "layers", "Layers": layers},
                       "Metadata": {"LastTagTime": NEVER if tagged is None else stamp(tagged)}},
            )
        )  # fmt: skip

    def list(self, filters: dict[str, str]) -> list[Any]:
        assert filters == {"label": RELEASE}
        return list(self.there)

    def remove(self, name: str) -> None:
        if name == self.held:
            raise APIError("conflict", explanation=f"container 7 is using {name}")
        self.there = [one for one in self.there if one.tags != [name]]

    def prune(self, filters: dict[str, Any]) -> dict[str, Any]:
        self.filters.append(filters)
        return {}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Images]:
    """A folder with environments 10, 20 and 40 days old; a daemon, whose images are on this disk or another one."""
    here, root = tmp_path / "here", tmp_path / "docker"
    (here / venv.ROOT).mkdir(parents=True)
    root.mkdir()
    monkeypatch.chdir(here)
    for age in (10, 20, 40):
        (here / venv.ROOT / f"vllm-{age}.0-0000000000000000.{age:08}").mkdir()
        place = here / venv.ROOT / f"vllm-{age}.0-0000000000000000"
        place.symlink_to(f"vllm-{age}.0-0000000000000000.{age:08}")
        os.utime(place, (time.time() - age * 86400,) * 2, follow_symlinks=False)
    monkeypatch.setattr(daemon, "examine", lambda: Daemon(version="24.0"))

    def make(images: Images, *, apart: bool = False, visible: bool = True) -> Images:
        client = SimpleNamespace(images=images, close=lambda: None)
        monkeypatch.setattr(daemon, "connect", lambda: client)
        monkeypatch.setattr(daemon, "data_root", lambda _: root if visible else None)
        if apart:
            stat = Path.stat
            other = SimpleNamespace(st_dev=-1)
            monkeypatch.setattr(Path, "stat", lambda path, **how: other if path == root else stat(path, **how))

        def free(place: Path) -> int:
            environments = sum(one.is_symlink() for one in (here / venv.ROOT).iterdir())
            if apart:
                return (70 - (environments if place == here else len(images.there))) * GB
            return (70 - environments - len(images.there)) * GB

        monkeypatch.setattr(cleaning, "_free", free)
        return images

    return make


def three() -> Images:
    images = Images()
    images.add("old:1", ["x"], made=90)
    images.add("used:1", ["y"], made=90, tagged=5)
    images.add("new:1", ["z"], made=15)
    return images


def left() -> list[str]:
    return sorted(one.name.partition(".")[0] for one in venv.ROOT.iterdir() if one.is_symlink())


def test_on_one_disk_both_kinds_go_in_one_order_and_no_more_than_needed(machine: Callable[..., Images]) -> None:
    images, told = machine(three()), list[str]()
    cleaning.make_room(67, told.append)
    assert [one.tags[0] for one in images.there] == ["used:1", "new:1"]
    assert left() == ["vllm-10"]
    assert [line.rpartition("/")[2] for line in told] == [
        "old:1: removed", "vllm-40.0-0000000000000000: removed", "vllm-20.0-0000000000000000: removed",
        "here: 64.0 GB were free, and 67.0 GB are now",
    ]  # fmt: skip


def test_each_disk_is_measured_and_only_what_is_on_it_goes(machine: Callable[..., Images]) -> None:
    images, told = machine(three(), apart=True), list[str]()
    cleaning.make_room(69, told.append)
    assert [one.tags[0] for one in images.there] == ["used:1"]
    assert left() == ["vllm-10"]
    assert [line.rpartition("/")[2] for line in told if "are now" in line] == [
        "here: 67.0 GB were free, and 69.0 GB are now", "docker: 67.0 GB were free, and 69.0 GB are now",
    ]  # fmt: skip


def test_a_daemon_elsewhere_is_said_and_its_images_stay(machine: Callable[..., Images]) -> None:
    images, told = machine(three(), visible=False), list[str]()
    with pytest.raises(MachineError, match=r"here: 67\.0 GB are free; 68 GB are wanted, and nothing of ours is left"):
        cleaning.make_room(68, told.append)
    assert len(images.there) == 3
    assert left() == []
    assert "Docker's images are not where this machine could measure their disk: they stay" in told[0]


def test_what_a_container_has_stays_and_so_does_what_it_is_built_on(machine: Callable[..., Images]) -> None:
    images, told = Images(held="top:1"), list[str]()
    images.add("base:1", ["x"], made=90)
    images.add("top:1", ["x", "y"], made=80)
    images.add("side:1", ["x", "z"], made=70)
    machine(images, apart=True)
    with pytest.raises(MachineError, match="docker: "):
        cleaning.make_room(69, told.append)
    assert [one.tags[0] for one in images.there] == ["base:1", "top:1"]
    assert [line for line in told if ":1" in line] == [
        "top:1: kept, container 7 is using top:1", "side:1: removed", "base:1: kept, top:1 is in use",
    ]  # fmt: skip


def test_builds_that_go_on_are_left_alone(machine: Callable[..., Images]) -> None:
    images = machine(three())
    cleaning.make_room(65, lambda _: None)
    assert images.filters == [{"dangling": True, "label": "attnmatrix.stage", "until": "1h"}]


def test_a_disk_that_is_too_small_is_said_before_anything_goes(machine: Callable[..., Images]) -> None:
    images = machine(three(), apart=True)
    with pytest.raises(UsageError, match="nothing was removed"):
        cleaning.make_room(10_000_000, lambda _: None)
    assert (len(images.there), len(left())) == (3, 3)


@pytest.mark.parametrize(
    ("info", "found"),
    [
        ({}, True),
        ({"Name": "another"}, False),  # the daemon of the host, seen from a container
        ({"DockerRootDir": "/nowhere"}, False),  # that of a virtual machine
        ({"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]], "DockerRootDir": "/nowhere"}, True),
        ({"DriverStatus": None}, True),
    ],
)
def test_where_a_daemon_keeps_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, info: dict[str, Any], found: bool
) -> None:
    monkeypatch.setattr(daemon, "CONTAINERD_ROOT", tmp_path)
    monkeypatch.setattr("platform.node", lambda: "lab1")
    client = SimpleNamespace(info=lambda: {"DockerRootDir": str(tmp_path), "Name": "lab1", **info})
    assert daemon.data_root(client) == (tmp_path if found else None)  # type: ignore[arg-type]


def test_an_image_counts_as_used_when_it_was_last_tagged() -> None:
    images = three()
    client = SimpleNamespace(images=images, close=lambda: None)
    with contextlib.closing(client):
        idle = {one.name: round(one.idle_s / 86400) for one in inventory.images(client)}  # type: ignore[arg-type]
    assert idle == {"old:1": 90, "used:1": 5, "new:1": 15}
