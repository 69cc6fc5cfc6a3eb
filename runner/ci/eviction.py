"""Ends a job that a machine does not take, whatever its steps say.

A hook that fails is a step that failed: GitHub's runner goes on, and a step with `if: always()` or an action's `pre:`
runs (actions/runner 2.336.0, StepsRunner.cs). So the process of the job is ended, which Runner.Listener reports as a
job that failed. It is stopped first, so that it can do nothing while what it fetched is removed.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from runner.errors import UsageError

WORKER = "Runner.Worker"
LISTENER = "Runner.Listener"
WORK = "_work"
TOOLS = "_tool"
"""Stays: only jobs that were taken put something there."""

Say = Callable[[str], None]


def check(work: Path) -> Path:
    """The folder of the Actions runner's work; UsageError where it is none, so that nothing else is ever removed."""
    if work.name != WORK or work.is_symlink() or not work.is_dir():
        raise UsageError(f"--work {work}: name the folder {WORK} of the Actions runner, as /srv/actions/{WORK}")
    return work


def evict(work: Path | None, say: Say, *, start: int | None = None) -> bool:
    """End the job that asked, and remove what it has fetched; False where its process was not found.

    `start` is a process of the job, by default this one's parent.
    """
    worker = worker_above(os.getppid() if start is None else start)
    if worker is not None:
        os.kill(worker, signal.SIGSTOP)
    for path in left_by_job(work) if work else ():
        remove(path, say)
    if worker is None:
        say(f"no process {WORKER} is above this one: other steps of the job may run; stop the Actions runner")
        return False
    os.kill(worker, signal.SIGKILL)
    say(f"{WORKER} ({worker}) is ended: no step of the job runs")
    return True


def worker_above(pid: int) -> int | None:
    """The process that runs the steps of the job which this process belongs to: the outermost of that name."""
    found = None
    while pid > 1:
        name, parent = _name_and_parent(pid)
        if name == WORKER or (parent > 1 and _name_and_parent(parent)[0] == LISTENER):
            found = pid
        pid = parent
    return found


def left_by_job(work: Path) -> Iterator[Path]:
    """What the Actions runner keeps for jobs: checkouts, fetched actions, temporary files."""
    return (path for path in sorted(work.iterdir()) if path.name != TOOLS)


def remove(path: Path, say: Say) -> None:
    """Remove a file, a link or a folder; a link is not followed."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        say(f"{path}: cannot be removed ({error.strerror}): remove it by hand")


def _name_and_parent(pid: int) -> tuple[str, int]:
    """From /proc/PID/stat, whose second field is the name in brackets, which may hold brackets itself."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return "", 0
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, int(rest.split()[1])
