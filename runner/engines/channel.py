"""Line framing: bytes of a worker in, checked messages out."""

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from runner.messages import LINE_LIMIT, Message, ProtocolError, parse


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
