"""What is shown while a run goes on: a bar on a terminal, plain lines with a heartbeat where lines are kept."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from runner.model import Fault, State, Verdict
from runner.reports import console as consoles
from runner.reports.text import count, one_line

HEARTBEAT_S = 30.0
STEP_PERCENT = 10


class Display(Protocol):
    """What a run tells while it goes on; its methods may be called from any thread."""

    def start(self, total: int) -> None: ...

    def cell_finished(self, outcome: State | Verdict, cell_id: str) -> None: ...

    def note(self, text: str) -> None: ...

    def stop(self) -> None: ...


def make(console: Console, *, verbosity: int = 0) -> Display:
    """The display for this console; verbosity below 0 is silent, above 0 names each cell."""
    if verbosity < 0:
        return Silent()
    if consoles.live(console):
        return Bar(console, verbose=verbosity > 0)
    return Lines(console, verbose=verbosity > 0)


def is_bad(outcome: State | Verdict) -> bool:
    return outcome.fault is not Fault.NONE


class Silent:
    """-q: nothing but the report."""

    def start(self, total: int) -> None:
        pass

    def cell_finished(self, outcome: State | Verdict, cell_id: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def stop(self) -> None:
        pass


class RateColumn(ProgressColumn):
    """Asked at each redraw, so that a run that stands still shows it."""

    def __init__(self, rate: Callable[[], float]) -> None:
        super().__init__()
        self._rate = rate

    def render(self, task: Task) -> Text:
        return Text(f"{self._rate():.1f}/s" if task.started else "")


class Bar:
    """A line that is redrawn: cells done, rate, bad ones, time."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._verbose = verbose
        self._bad = 0
        self._task: TaskID | None = None
        self._progress = Progress(
            TextColumn("cells"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            RateColumn(self._current_rate),
            TextColumn("{task.fields[bad]} bad"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._lock = threading.Lock()
        self._done = 0
        self._rate = Rate()

    def start(self, total: int) -> None:
        self._task = self._progress.add_task("", total=total, bad=0)
        self._rate.start()
        self._progress.start()

    def cell_finished(self, outcome: State | Verdict, cell_id: str) -> None:
        with self._lock:
            self._done += 1
            self._bad += is_bad(outcome)
            if self._task is not None:
                self._progress.update(self._task, completed=self._done, bad=self._bad)
        if self._verbose:
            self.note(f"{outcome} {cell_id}")

    def _current_rate(self) -> float:
        return self._rate.now(self._done)

    def note(self, text: str) -> None:
        self._progress.console.print(Text(one_line(text, 1000)))

    def stop(self) -> None:
        self._progress.stop()


class Rate:
    """Cells per second over the last seconds, not since the start: the imports would weigh on it for long."""

    WINDOW_S = 10.0

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def start(self) -> None:
        self._seen = deque([(time.monotonic(), 0)])

    def now(self, done: int) -> float:
        at = time.monotonic()
        self._seen.append((at, done))
        while len(self._seen) > 2 and at - self._seen[1][0] > self.WINDOW_S:
            self._seen.popleft()
        since, before = self._seen[0]
        return (done - before) / max(at - since, 1e-3)


class Lines:
    """A line at each tenth of the way, one if nothing was said for half a minute, and one at the end."""

    def __init__(self, console: Console, *, verbose: bool = False, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._console = console
        self._verbose = verbose
        self._heartbeat_s = heartbeat_s
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._total = self._done = self._bad = self._steps = 0
        self._started = self._spoke = time.monotonic()
        self._rate = Rate()

    def start(self, total: int) -> None:
        self._total = total
        self._started = self._spoke = time.monotonic()
        self._rate.start()
        self._say(f"{count(total, 'cell')} to run")
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def cell_finished(self, outcome: State | Verdict, cell_id: str) -> None:
        with self._lock:
            self._done += 1
            self._bad += is_bad(outcome)
            self._rate.now(self._done)
            if self._verbose:
                self._say(f"{outcome} {cell_id}")
            steps = self._done * 100 // max(self._total, 1) // STEP_PERCENT
            if steps > self._steps:
                self._steps = steps
                self._say(self._progress())

    def note(self, text: str) -> None:
        with self._lock:
            self._say(text)

    def stop(self) -> None:
        self._stopped.set()
        if self._thread:
            self._thread.join()

    def _beat(self) -> None:
        while not self._stopped.wait(self._heartbeat_s / 10):
            with self._lock:
                if time.monotonic() - self._spoke >= self._heartbeat_s:
                    self._say(self._progress())

    def _progress(self) -> str:
        elapsed = time.monotonic() - self._started
        percent = self._done * 100 // max(self._total, 1)
        rate = self._rate.now(self._done)
        return f"{self._done:,}/{self._total:,} cells ({percent}%), {rate:.1f}/s, {self._bad:,} bad, {elapsed:.0f} s"

    def _say(self, text: str) -> None:
        self._spoke = time.monotonic()
        self._console.print(Text(one_line(text, 1000)), soft_wrap=True)
