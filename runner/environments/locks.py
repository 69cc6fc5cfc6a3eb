"""Lets one run at a time build an environment; the others wait and say for whom."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from runner.environments.progress import Say
from runner.environments.steps import HEARTBEAT_S


@contextlib.contextmanager
def only_one(path: Path, what: str, say: Say) -> Iterator[None]:
    """Hold the lock file `path`; the kernel frees it when its holder dies, however that happens."""
    lock = FileLock(path)
    holder = path.with_suffix(".holder")  # not in the lock file: that is emptied by whoever tries to take it
    patience = 0.0
    while True:
        try:
            lock.acquire(timeout=patience)
            break
        except Timeout:
            say(f"{what}: waiting for {_read(holder)}, which is at it already")
            patience = HEARTBEAT_S
    try:
        holder.write_text(f"process {os.getpid()} (since {time.strftime('%H:%M:%S')})")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


@contextlib.contextmanager
def if_free(path: Path) -> Iterator[bool]:
    """Hold the lock for the block where nobody else does; gives whether it is held."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _read(holder: Path) -> str:
    try:
        return holder.read_text()
    except OSError:
        return "another process"
