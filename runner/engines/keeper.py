"""The half of the Ray engine that runs on a node: an actor that keeps one worker there and passes on what it says.

It goes to the nodes by value, before the runner's sources are there: until they are, it has the standard library only.
"""

import contextlib
import importlib
import io
import json
import os
import pickle
import queue
import shutil
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

HOME = "ATTNMATRIX_HOME"
"""Names the folder of a node, on its own disk, that keeps environments and sources from run to run; ~/.attnmatrix."""
WAIT_S = 0.25  # how soon an end that is asked for is noticed while a cell runs
BACKLOG = 1024  # messages not yet read; a worker that says more has to wait
NEWS = 256  # messages of one answer

News = tuple[str, Any]
"""What a reader is told: `note` a line for people, `opened` the worker's facts, `line` a message of the worker, and as
the last one `failed` why none could be started, `died` how its process ended, `lost` what else became of it, or `wrong`
what of it was no message."""


class Keeper:
    """Opens an engine on its node, starts a worker with it, and feeds it. Three threads call it, one works."""

    def __init__(self, sources: bytes, digest: str, opening: bytes) -> None:
        self._sources, self._digest, self._opening = sources, digest, opening
        self._news: queue.Queue[News] = queue.Queue(BACKLOG)
        self._orders: queue.Queue[bytes | None] = queue.Queue()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def read(self, timeout_s: float) -> list[News]:
        """What has been said since the last call; empty after that long a silence."""
        try:
            news = [self._news.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        with contextlib.suppress(queue.Empty):
            while len(news) < NEWS:
                news.append(self._news.get_nowait())
        return news

    def write(self, message: bytes) -> None:
        """A cell for the worker, as the line that it is given."""
        self._orders.put(message)

    def end(self) -> bool:
        """Ends the worker and what it started; says whether it is done."""
        self._ending.set()
        self._orders.put(None)
        with contextlib.suppress(queue.Empty):  # nobody reads any more
            while True:
                self._news.get_nowait()
        self._thread.join(3.0)
        return not self._thread.is_alive()

    def _tell(self, kind: str, value: Any) -> None:
        while not self._ending.is_set():
            with contextlib.suppress(queue.Full):
                self._news.put((kind, value), timeout=WAIT_S)
                break

    def _work(self) -> None:
        try:
            enter(self._sources, self._digest)
            opening: AbstractContextManager[Any]
            opening, order = pickle.loads(self._opening)(lambda text: self._tell("note", text))  # noqa: S301 - the run's own
            with opening as engine:
                for left in engine.sweep():
                    self._tell("note", f"removed what a dead run left: {left}")
                worker = engine.start(order)
                try:
                    self._tell("opened", dict(worker.facts))
                    self._feed(worker)
                finally:
                    worker.kill()
        except BaseException as error:  # noqa: BLE001 - whatever is wrong with this node, its reader is told
            self._tell("failed", str(error) or type(error).__name__)

    def _feed(self, worker: Any) -> None:
        base, messages = (importlib.import_module(f"runner.{name}") for name in ("engines.base", "messages"))
        try:
            for line in self._listen(worker, messages, "ready"):
                self._tell("line", line)
            while (order := self._orders.get()) is not None:
                worker.send(json.loads(order))
                for line in self._listen(worker, messages, "done"):
                    self._tell("line", line)
        except messages.ProtocolError as error:
            self._tell("wrong", str(error))
        except base.EngineError as lost:
            try:
                self._tell("died" if isinstance(lost, base.WorkerDied) else "lost", worker.exit_status())
            except base.EngineError as error:
                self._tell("lost", str(error))

    def _listen(self, worker: Any, messages: Any, last: str) -> Iterator[bytes]:
        """Messages up to one of the kind `last`, or until an end is asked for."""
        kind = ""
        while kind != last and not self._ending.is_set():
            if (message := worker.receive(WAIT_S)) is not None:
                kind = messages.kind(message)
                yield messages.render(message)


def enter(sources: bytes, digest: str) -> Path:
    """Unpacks the sources unless the node has them, makes them the first that are imported; the place that has them."""
    home = Path(os.environ.get(HOME) or Path.home() / ".attnmatrix").absolute()
    place = home / "sources" / digest
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=place.parent, prefix=f"{digest}."))
        with tarfile.open(fileobj=io.BytesIO(sources)) as tar:
            tar.extractall(folder, filter="data")
        try:
            folder.rename(place)
        except OSError:  # another worker was faster
            shutil.rmtree(folder, ignore_errors=True)
    os.chdir(home)  # environments are made below the working directory
    sys.path.insert(0, str(place))
    found = Path(str(importlib.import_module("runner").__file__))
    if not found.is_relative_to(place):
        raise RuntimeError(f"the runner was imported from {found.parent}, not from {place}: its cells could be others")
    return place
