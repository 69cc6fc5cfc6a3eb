"""Lets one run at a time build an environment; the others wait and say for whom."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from runner import holder
from runner.environments.progress import Say
from runner.environments.steps import HEARTBEAT_S


@contextlib.contextmanager
def only_one(path: Path, what: str, say: Say) -> Iterator[None]:
    """Hold the lock file `path`; the kernel frees it when its holder dies, however that happens."""
    lock = FileLock(path)
    signed = path.with_suffix(".holder")
    patience = 0.0
    while True:
        try:
            lock.acquire(timeout=patience)
            break
        except Timeout:
            say(f"{what}: waiting for {holder.who(signed)}, which is at it already")
            patience = HEARTBEAT_S
    try:
        holder.sign(signed, f" (since {time.strftime('%H:%M:%S')})")
        yield
    finally:
        signed.unlink(missing_ok=True)
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
