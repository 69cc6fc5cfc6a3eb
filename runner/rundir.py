"""Where a run keeps its files: a new directory for each, named by when it began, and a link to the newest."""

import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from runner import holder
from runner.errors import MachineError, UsageError
from runner.options import RunOptions

RUNS = Path("runs")
ASKED = "run.json"
LOCK, HOLDER = ".lock", ".holder"


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a run was asked for: enough to go on with it."""

    run_id: str
    options: RunOptions
    workflow: int = 0
    """The id of the workflow run of GitHub Actions that it is part of; 0 outside of one."""
    attempt: int = 0
    """Which attempt at that it is, from 1."""


_ASKED = TypeAdapter(Asked)


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """A run's id and its directory."""

    run_id: str
    path: Path


def create(out: Path | None) -> RunDirectory:
    """A new run directory: `out` itself, or one under runs/. UsageError where `out` holds something already."""
    run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    path = out or RUNS / run_id
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise UsageError(f"{path}: is not empty: a run needs a directory of its own, name another one with --out")
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{path}: is a file: --out names a directory") from None
    except OSError as error:
        raise MachineError(f"{path}: cannot be made ({error.strerror}): name another directory with --out") from None
    return RunDirectory(run_id, path)


def keep(run: RunDirectory, options: RunOptions) -> None:
    """Write what was asked for into the run directory, and the workflow run that this is part of."""
    workflow, attempt = here()
    asked = Asked(run_id=run.run_id, options=options, workflow=workflow, attempt=attempt)
    (run.path / ASKED).write_bytes(_ASKED.dump_json(asked, indent=1) + b"\n")


def here() -> tuple[int, int]:
    """The workflow run of GitHub Actions that this process is part of, and the attempt at it; zeros outside of one."""
    said = (os.environ.get(name, "") for name in ("GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT"))
    workflow, attempt = (int(text) if text.isascii() and text.isdecimal() else 0 for text in said)
    return workflow, attempt


def asked(path: Path) -> Asked:
    """What the run in a directory was asked for; UsageError where there is no such run."""
    try:
        return _ASKED.validate_json((path / ASKED).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path}: has no {ASKED}: name a run directory, such as runs/latest") from None
    except (OSError, ValidationError) as error:
        raise UsageError(f"{path / ASKED}: cannot be read: {error}") from None


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a run directory alone; UsageError says who has it. The kernel frees it when its holder dies.

    MachineError where the directory cannot be written.
    """
    lock, signed = FileLock(path / LOCK), path / HOLDER
    try:
        lock.acquire(timeout=0)
        holder.sign(signed, f" on {socket.gethostname()} (since {datetime.now(UTC):%H:%M:%S} UTC)")
    except Timeout:
        raise UsageError(f"{path}: {holder.who(signed)} is at this run: wait for it, or end it") from None
    except OSError as error:
        lock.release()
        raise MachineError(
            f"{path}: cannot be written ({error.strerror}): a run needs room and rights there; `runner report {path}` "
            "shows a run that can only be read, and a copy of it can be gone on with"
        ) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            signed.unlink(missing_ok=True)
        lock.release()


def link_latest(run: RunDirectory) -> None:
    """Let runs/latest name this run; a run somewhere else is not linked."""
    if run.path.parent != RUNS:
        return
    link = RUNS / f".latest-{run.run_id}"
    link.symlink_to(run.path.name)
    link.replace(RUNS / "latest")
