"""What a container is sent while it takes nothing: nobody waits for it."""

import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from runner.engines import channel
from runner.engines.base import WorkerLost
from runner.engines.docker import DockerWorker

LARGE = {"run": {"cell": {"id": "a", "text": "x" * 4_000_000}}}


@pytest.fixture
def pair() -> Iterator[tuple[DockerWorker, socket.socket]]:
    """A worker in a container that is played, and the container's end of the stream."""
    ours, theirs = socket.socketpair()
    container = SimpleNamespace(remove=lambda force: None)
    worker = DockerWorker(container, ours, {})  # type: ignore[arg-type]
    yield worker, theirs
    worker.kill()
    theirs.close()


def test_sending_and_hearing_do_not_wait_for_room_in_the_stream(pair: tuple[DockerWorker, socket.socket]) -> None:
    worker, _ = pair
    started = time.monotonic()
    worker.send(LARGE)
    assert worker.receive(0.2) is None
    assert time.monotonic() - started < 2


def test_what_was_sent_arrives_whole_once_it_is_taken(pair: tuple[DockerWorker, socket.socket]) -> None:
    worker, theirs = pair
    worker.send(LARGE)
    worker.send({"stop": {}})
    theirs.settimeout(0.01)
    taken = b""
    until = time.monotonic() + 60
    while not taken.endswith(b'{"stop": {}}\n') and time.monotonic() < until:
        assert worker.receive(0.01) is None
        try:
            while True:
                taken += theirs.recv(1 << 20)
        except TimeoutError:
            pass
    assert taken == channel.encode(LARGE) + b'{"stop": {}}\n'


def test_a_container_that_takes_nothing_for_long_is_lost(
    pair: tuple[DockerWorker, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "SEND_S", 0.2)
    worker, _ = pair
    worker.send(LARGE)
    with pytest.raises(WorkerLost, match="it took nothing of what it was sent"):
        worker.receive(10.0)
    assert worker.exit_status() == channel.STALLED
