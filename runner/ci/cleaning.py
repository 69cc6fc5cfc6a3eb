"""Leaves a machine that lives for months as it was found: nothing of dead runs runs on, and the disk has room."""

import contextlib
import heapq
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from docker import DockerClient

from runner import rundir
from runner.engines.docker import DockerEngine
from runner.engines.local import LocalEngine
from runner.environments import daemon, inventory, venv
from runner.environments.inventory import Built
from runner.environments.progress import size
from runner.environments.recipe import shipped
from runner.errors import MachineError, UsageError
from runner.machine import WORKER

DAY_S = 86_400
Say = Callable[[str], None]


def end_left_overs(say: Say) -> None:
    """End the processes and containers whose runner is dead, and remove what builds left that were killed."""
    cases = shipped("cases")
    for ended in LocalEngine(python_for=lambda _: Path(), worker=WORKER, cases=cases).sweep():
        say(f"{ended}: ended, its run is dead")
    for folder in venv.sweep(venv.ROOT) if venv.ROOT.is_dir() else ():
        say(f"{folder}: removed, left by a build that was killed or replaced")
    if daemon.examine().answers:
        with contextlib.closing(daemon.connect()) as client:
            engine = DockerEngine(client, image_for=lambda _: "", run_id="", worker=WORKER, cases=cases)
            for ended in engine.sweep():
                say(f"{ended}: ended, its run is dead")


def remove_runs(runs: Path, *, days: float, say: Say) -> None:
    """Remove the run directories that ended that long ago and that nobody is at; anything else stays."""
    for path in sorted(runs.iterdir()) if runs.is_dir() else ():
        asked = path / rundir.ASKED
        if path.is_symlink() or not asked.is_file() or time.time() - _touched(path) < days * DAY_S:
            continue
        try:
            with rundir.held(path):
                shutil.rmtree(path)
        except UsageError as error:  # somebody is at it
            say(str(error))
        else:
            say(f"{path}: removed, older than {days:g} days")
    latest = runs / "latest"
    if latest.is_symlink() and not latest.exists():
        latest.unlink()


def _touched(path: Path) -> float:
    """When something in a run directory was last written, in seconds since 1970."""
    return max(found.lstat().st_mtime for found in (path, *path.iterdir()))


def make_room(gigabytes: float, say: Say) -> None:
    """Remove environments and images that nobody uses, until each of their disks has that much free.

    Those that were used longest ago go first, one by one, and no more than needed. MachineError where it cannot be had;
    UsageError, before anything is removed, where a disk is smaller than that.
    """
    if not gigabytes:
        return
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(contextlib.closing(daemon.connect())) if daemon.examine().answers else None
        disks = _disks(client, say)
        for disk in disks:
            if gigabytes * 1e9 > (total := shutil.disk_usage(disk.place).total):
                raise UsageError(
                    f"--free {gigabytes:g}: the disk of {disk.place} has {size(total)}: nothing was removed"
                )
        for disk in disks:
            _make_room_on(disk, gigabytes, client, say)
    if poor := [disk for disk in disks if _free(disk.place) < gigabytes * 1e9]:
        raise MachineError(
            f"{'; '.join(f'{disk.place}: {size(_free(disk.place))} are free' for disk in poor)}; {gigabytes:g} GB are "
            "wanted, and nothing of ours is left to remove: make room (`docker system df` and "
            "`du -xh --max-depth=2 /` tell where it went)"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """A file system that something of ours is on."""

    place: Path
    environments: bool = False
    """Whether those of this folder, and its runs, are there."""
    images: bool = False


def _disks(client: DockerClient | None, say: Say) -> list[Disk]:
    """That of this folder, and that of the daemon's data root where it is another one and can be measured."""
    here = Disk(place=Path.cwd(), environments=True)
    if client is None:
        return [here]
    place = daemon.data_root(client)
    if place is None:
        say("Docker's images are not where this machine could measure their disk: they stay (`runner env clean`)")
        return [here]
    if place.stat().st_dev == here.place.stat().st_dev:
        return [replace(here, images=True)]
    return [here, Disk(place=place, images=True)]


def _make_room_on(disk: Disk, gigabytes: float, client: DockerClient | None, say: Say) -> None:
    before = _free(disk.place)
    if before >= gigabytes * 1e9:
        return
    if disk.images and client:
        inventory.clean_stages(client)
    environments = inventory.in_order(_environments(say)) if disk.environments else []
    images = inventory.in_order(inventory.images(client)) if disk.images and client else []
    remover = inventory.Remover(tell=say, client=client)
    for one in heapq.merge(environments, images, key=lambda one: -one.idle_s):
        if _free(disk.place) >= gigabytes * 1e9:
            break
        remover.remove(one)
    say(f"{disk.place}: {size(before)} were free, and {size(_free(disk.place))} are now")


def _environments(say: Say) -> list[Built]:
    """Those of this folder. What a link leads to is shared with others, who may need it next."""
    if not venv.ROOT.is_dir():
        return []
    if not venv.ROOT.resolve().is_relative_to(Path.cwd().resolve()):
        say(f"{venv.ROOT}: kept, it leads to {venv.ROOT.resolve()}: clean there")
        return []
    return inventory.local()


def _free(place: Path) -> int:
    """Bytes that the disk of this place has left."""
    return shutil.disk_usage(place).free
