"""Leaves a machine that lives for months as it was found: nothing of dead runs runs on, and the disk has room."""

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from runner import rundir
from runner.engines.docker import DockerEngine
from runner.engines.local import LocalEngine
from runner.environments import daemon, inventory, venv
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
    """Remove environments and images that nobody uses, one by one, until that much is free.

    MachineError where it cannot be had; UsageError, before anything is removed, where the disk is smaller than that.
    """
    total = shutil.disk_usage(Path.cwd()).total
    if gigabytes * 1e9 > total:
        raise UsageError(f"--free {gigabytes:g}: the whole disk has {size(total)}: nothing was removed")

    def enough() -> bool:
        return _free() >= gigabytes * 1e9

    for remove in (_environments, _images):
        if not enough():
            remove(enough, say)
    if not enough():
        raise MachineError(
            f"{size(_free())} are free, {gigabytes:g} GB are wanted, and nothing of ours is left to remove: make room "
            "(`docker system df` and `du -xh --max-depth=2 /` tell where it went)"
        )


def _environments(enough: Callable[[], bool], say: Say) -> None:
    """Those of this folder. What a link leads to is shared with others, who may need it next."""
    if venv.ROOT.is_dir() and not venv.ROOT.resolve().is_relative_to(Path.cwd().resolve()):
        say(f"{venv.ROOT}: kept, it leads to {venv.ROOT.resolve()}: clean there")
    elif venv.ROOT.is_dir():
        inventory.clean_local(tell=say, enough=enough)


def _images(enough: Callable[[], bool], say: Say) -> None:
    if daemon.examine().answers:
        with contextlib.closing(daemon.connect()) as client:
            inventory.clean_images(client, tell=say, enough=enough)


def _free() -> int:
    """Bytes of the disk that environments and runs are on."""
    return shutil.disk_usage(Path.cwd()).free
