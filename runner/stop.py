"""How a run is asked to end: once to finish what is in flight, twice to end at once."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class StopSignal:
    """Set by a signal handler or a test, read by the slots of a dispatch."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._killed = threading.Event()
        self.late = False
        """Whether the run had its time, and nobody asked it to end."""

    def request(self) -> None:
        """The first call lets the cells in flight finish; another one ends them."""
        if self._requested.is_set():
            self._killed.set()
        self._requested.set()

    def kill(self) -> None:
        self._requested.set()
        self._killed.set()

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    @property
    def killed(self) -> bool:
        return self._killed.is_set()

    def pause(self, seconds: float) -> None:
        """Sleeps, but not beyond a request to stop."""
        self._requested.wait(seconds)

    @contextlib.contextmanager
    def after(self, seconds: float | None) -> Iterator[None]:
        """Once the body has run that long, a request; None is never."""
        if seconds is None:
            yield
            return

        def end() -> None:
            self.late = not self.requested
            self._requested.set()

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM become requests while the body runs; main thread only."""

        def handle(_number: int, _frame: FrameType | None) -> None:
            self.request()

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
