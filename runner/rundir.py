"""Where a run keeps its files: a new directory for each, named by when it began, and a link to the newest."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from runner.errors import MachineError, UsageError

RUNS = Path("runs")


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


def link_latest(run: RunDirectory) -> None:
    """Let runs/latest name this run; a run somewhere else is not linked."""
    if run.path.parent != RUNS:
        return
    link = RUNS / f".latest-{run.run_id}"
    link.symlink_to(run.path.name)
    link.replace(RUNS / "latest")
