"""Workers as processes of this machine, in an environment's own Python; no walls, but nothing is left behind."""

import contextlib
import hashlib
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

from runner.engines.base import CannotStart, WorkerDied
from runner.engines.channel import STALLED, Channel, Outbox
from runner.engines.owner import Owner
from runner.messages import Message, clean
from runner.model import Evidence, Order
from runner.worker import remove

# What a worker sees of the caller's environment; anything else could make a result depend on who ran it.
PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "CUDA_VISIBLE_DEVICES")
FIXED = {
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
    "PYTHONUTF8": "1",
    # Memory on huge pages: a fork copies fewer page-table entries, and 300 MB of a builder cost 150 faults, not 80,000.
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
MARK = "ATTNMATRIX_WORKER"  # inherited by all that a worker starts: how its processes are found, whatever they do
FOLDER = "attnmatrix-worker-"
KILL_S = 30.0


def environment() -> dict[str, str]:
    """The environment variables of a worker, less what is its own."""
    return {key: os.environ[key] for key in PASSED if key in os.environ} | FIXED


@lru_cache
def installed(python: Path) -> str:
    """What an environment that was made by hand is made of: sixteen hex digits over the packages beside its Python."""
    places = [str(path) for path in python.parents[1].glob("lib/python*/site-packages")]
    found = sorted(f"{one.name.lower()}=={one.version}" for one in metadata.distributions(path=places))
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16] if found else ""


class LocalEngine:
    """Starts `python worker.py` with the Python of each order's environment."""

    name = "local"

    def __init__(
        self,
        *,
        python_for: Callable[[Order], Path],
        worker: Path,
        cases: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._python_for = python_for
        self._command = ["-u", str(worker.resolve()), "--cases", str(cases.resolve())]
        self._env = {**environment(), **(env or {})}
        self._owner = str(Owner.current())

    def start(self, order: Order) -> "LocalWorker":
        python = self._python_for(order)
        mark = f"{self._owner}/{uuid4().hex}"
        folder = None
        try:
            folder = Path(tempfile.mkdtemp(prefix=FOLDER))
            (folder / "owner").write_text(self._owner)
            with (folder / "stderr").open("wb") as stderr:
                process = subprocess.Popen(
                    [str(python), *self._command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    cwd=folder,
                    env={**self._env, **told(order), "TMPDIR": str(folder), MARK: mark},
                    start_new_session=True,  # Ctrl-C is for the runner, which lets the cells in flight finish
                    bufsize=0,
                )
        except OSError as error:
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            raise CannotStart(f"cannot start {python}: {error.strerror}") from error
        facts = {"recipe_digest": installed(python)} if order.evidence is Evidence.DEVICE else {}
        return LocalWorker(process, folder, mark, facts)

    def sweep(self) -> list[str]:
        ended = [f"process {pid}" for pid in end_marked(_is_left_over)]
        for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
            try:
                owner = Owner.parse((folder / "owner").read_text())
            except OSError:
                continue
            if owner and owner.is_dead():
                remove(folder)
                ended.append(str(folder))
        return ended

    def close(self) -> None:
        end_marked(lambda mark: mark.startswith(f"{self._owner}/"))


class LocalWorker:
    """A running worker process and the folder that holds its temporary files and its standard error."""

    def __init__(
        self, process: subprocess.Popen[bytes], folder: Path, mark: str, facts: Mapping[str, str] | None = None
    ) -> None:
        assert process.stdin
        assert process.stdout
        self.facts: Mapping[str, str] = facts or {}
        self._process, self._folder, self._mark = process, folder, mark
        self._stdin, self._stdout = process.stdin, process.stdout
        self._channel, self._outbox = Channel(), Outbox()
        os.set_blocking(self._stdin.fileno(), False)

    def send(self, message: Mapping[str, Any]) -> None:
        self._outbox.put(message)
        self._flush()

    def _flush(self) -> None:
        try:
            self._outbox.flush(partial(os.write, self._stdin.fileno()))
        except OSError as error:
            raise WorkerDied("the worker has ended") from error

    def receive(self, timeout_s: float) -> Message | None:
        until = time.monotonic() + timeout_s
        while (message := self._channel.next()) is None:
            self._flush()
            unsent = [self._stdin] if self._outbox else []
            readable, writable, _ = select.select([self._stdout], unsent, [], max(0.0, until - time.monotonic()))
            if not readable and not writable:
                return None
            if readable:
                data = os.read(self._stdout.fileno(), 65536)
                if not data:
                    raise WorkerDied("the worker has ended")
                self._channel.feed(data)
        return message

    def exit_status(self) -> str:
        if self._outbox.stalled:
            return STALLED
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "still running, but its output is closed"
        status = f"exit code {code}"
        if code < 0:
            status = f"killed by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"signal {-code}"
        return status + last_words((self._folder / "stderr").read_bytes()[-2000:])

    def kill(self) -> None:
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver that hangs may hold it for ever
            self._process.wait(timeout=KILL_S)
        end_marked(lambda mark: mark == self._mark)
        self._stdin.close()
        self._stdout.close()
        remove(self._folder)


def told(order: Order) -> dict[str, str]:
    """What the cases must know before there is a cell: a real device must not be touched by an import."""
    held = {"CUDA_VISIBLE_DEVICES": order.device} if order.device else {}
    return held | {
        "ATTNMATRIX_EVIDENCE": order.evidence.value,
        "ATTNMATRIX_CASE": order.case,
        "ATTNMATRIX_SEED": str(order.seed),
    }


def last_words(stderr: bytes) -> str:
    """The last line that a worker printed itself, to be put behind how it ended."""
    lines = clean(stderr.decode(errors="replace")).strip().splitlines()
    return f"; its last words: {lines[-1][:500]}" if lines else ""


def end_marked(wanted: Callable[[str], bool]) -> list[int]:
    """Kills all processes whose mark is wanted, until none is found: they may fork while they are looked for."""
    ended: list[int] = []
    for _ in range(20):
        found = [pid for pid, mark in marked() if wanted(mark)]
        if not found:
            break
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        ended += found
        time.sleep(0.01)
    return sorted(set(ended))


def marked() -> list[tuple[int, str]]:
    """Every living process of a worker of any run, with its mark."""
    found = []
    prefix = f"{MARK}=".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # another user's, or it has just ended
            continue
        mark = next((variable for variable in variables if variable.startswith(prefix)), None)
        if mark:
            found.append((int(folder.name), mark[len(prefix) :].decode(errors="replace")))
    return found


def _is_left_over(mark: str) -> bool:
    owner = Owner.parse(mark.rpartition("/")[0])
    return owner is not None and owner.is_dead()
