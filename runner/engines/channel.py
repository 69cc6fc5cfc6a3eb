"""Line framing: bytes of a worker in, checked messages out; and messages to a worker, as fast as it takes them."""

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from runner.engines.base import WorkerLost
from runner.messages import LINE_LIMIT, Message, ProtocolError, parse

SEND_S = 10.0
"""How long a worker may take nothing of what it is sent."""
STALLED = f"it took nothing of what it was sent for {SEND_S:g} s"


class Channel:
    """Collects bytes until they are whole lines; the memory it holds is bounded by the longest line."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._partial = bytearray()

    def feed(self, data: bytes) -> None:
        self._partial += data
        if b"\n" in data:
            *lines, rest = bytes(self._partial).split(b"\n")
            self._lines.extend(lines)
            self._partial = bytearray(rest)
        if len(self._partial) > LINE_LIMIT:
            raise ProtocolError(f"a line longer than {LINE_LIMIT} bytes")

    def next(self) -> Message | None:
        """The next whole message that has arrived; None where there is none."""
        return parse(self._lines.popleft()) if self._lines else None


def encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, allow_nan=False).encode() + b"\n"


class Outbox:
    """What a worker has not taken yet. Nobody waits until there is room in its pipe: a run must be able to end then."""

    def __init__(self) -> None:
        self._left = bytearray()
        self._since = 0.0
        self.stalled = False
        """Whether the worker had its time to take something."""

    def __bool__(self) -> bool:
        return bool(self._left)

    def put(self, message: Mapping[str, Any]) -> None:
        self._since = time.monotonic()
        self._left += encode(message)

    def flush(self, write: Callable[[bytes], int]) -> None:
        """Hands over what there is room for, with a `write` that does not wait; WorkerLost where there was none."""
        if not self._left:
            return
        try:
            taken = write(bytes(self._left))
        except (BlockingIOError, TimeoutError):
            taken = 0
        del self._left[:taken]
        if taken:
            self._since = time.monotonic()
        elif time.monotonic() - self._since > SEND_S:
            self.stalled = True
            raise WorkerLost(STALLED)
