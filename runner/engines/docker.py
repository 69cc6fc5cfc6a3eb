"""Workers in containers: no network, no privileges, a read-only root, and two read-only mounts."""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import requests
import urllib3
from docker import DockerClient
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container
from docker.models.images import Image
from docker.types import LogConfig, Mount

from runner.engines.base import CannotStart, EngineGone, NotNow, WorkerLost
from runner.engines.channel import STALLED, Channel, Outbox
from runner.engines.local import FIXED, last_words, told
from runner.engines.owner import Owner
from runner.engines.walls import Walls, gpu_for_sdk
from runner.environments.base_image import LABEL, digest_in
from runner.environments.image import HASHES, RECIPE
from runner.messages import Message, clean
from runner.model import Evidence, Order

RUN, OWNER = "attnmatrix.run", "attnmatrix.owner"  # labels
INSIDE = "/attnmatrix"
BUSY = (requests.codes.too_many_requests, requests.codes.service_unavailable)
WALLS = Walls()


class DockerEngine:
    """Starts a container for each worker and speaks with it over its attached streams."""

    name = "docker"

    def __init__(
        self,
        client: DockerClient,
        *,
        image_for: Callable[[Order], str],
        run_id: str,
        worker: Path,
        cases: Path,
        env: Mapping[str, str] | None = None,
        walls: Walls = WALLS,
    ) -> None:
        self._client, self._image_for, self._run_id = client, image_for, run_id
        self._mounts = [
            Mount(f"{INSIDE}/cases", str(cases.resolve()), type="bind", read_only=True),
            Mount(f"{INSIDE}/worker.py", str(worker.resolve()), type="bind", read_only=True),
        ]
        # HOME is where caches go; nothing else is writable.
        self._env = {**FIXED, "LANG": "C.UTF-8", "HOME": "/tmp", **(env or {})}  # noqa: S108 - a path in the container
        self._walls = walls

    def start(self, order: Order) -> "DockerWorker":
        with _faults("start a container"):
            image = self._client.images.get(self._image_for(order))
            container = self._client.containers.create(
                image,
                entrypoint=["python3", "-u", f"{INSIDE}/worker.py", "--cases", f"{INSIDE}/cases"],
                stdin_open=True,  # and closed with the attached stream: the worker ends when the runner does
                environment={**self._env, **told(order)},
                labels={RUN: self._run_id, OWNER: str(Owner.current())},
                mounts=self._mounts,
                log_config=LogConfig(type="none"),  # the attached stream is the log; nothing fills the disk
                device_requests=gpu_for_sdk(order, cdi=has_cdi(self._client, order)),
                **self._walls.for_sdk(),
            )
            try:
                # Before the start, so that not a byte is missed.
                stream = container.attach_socket(params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
                container.start()
            except BaseException:
                with contextlib.suppress(Exception):
                    container.remove(force=True)
                raise
        return DockerWorker(container, stream, made_of(order, image))

    def sweep(self) -> list[str]:
        def left_over(container: Container) -> bool:
            owner = Owner.parse(container.labels.get(OWNER, ""))
            return owner is not None and owner.is_dead()

        with _faults("look for left-over containers"):
            return self._remove(OWNER, left_over)

    def close(self) -> None:
        with contextlib.suppress(EngineGone, CannotStart), _faults("remove containers"):
            self._remove(f"{RUN}={self._run_id}", lambda _: True)

    def _remove(self, label: str, wanted: Callable[[Container], bool]) -> list[str]:
        # ignore_removed: another runner may be sweeping too.
        found = self._client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        removed = [container for container in found if wanted(container)]
        for container in removed:
            with contextlib.suppress(NotFound):
                container.remove(force=True)
        return [f"container {container.name}" for container in removed]


class DockerWorker:
    """A container and the stream attached to it."""

    def __init__(self, container: Container, stream: Any, facts: Mapping[str, str]) -> None:
        self.facts = facts
        self._container = container
        # What docker-py returns is a file around the socket (a plain socket with TLS). Both are kept: when the file
        # is collected, the socket is closed.
        self._stream = stream
        self._socket: socket.socket = getattr(stream, "_sock", stream)
        self._frames = Frames()
        self._channel, self._outbox = Channel(), Outbox()
        self._stderr = b""

    def send(self, message: Mapping[str, Any]) -> None:
        self._outbox.put(message)
        self._flush()

    def _flush(self) -> None:
        try:
            self._socket.settimeout(0.01)
            self._outbox.flush(self._socket.send)
        except OSError as error:
            raise WorkerLost("the container has ended") from error

    def receive(self, timeout_s: float) -> Message | None:
        until = time.monotonic() + timeout_s
        while (message := self._channel.next()) is None:
            self._flush()
            self._socket.settimeout(max(0.001, min(until - time.monotonic(), 0.1 if self._outbox else timeout_s)))
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                if time.monotonic() < until:
                    continue
                return None
            except OSError as error:
                raise WorkerLost("the stream to the container broke") from error
            if not data:
                raise WorkerLost("the container has ended")
            for number, payload in self._frames.feed(data):
                if number == 1:
                    self._channel.feed(payload)
                else:
                    self._stderr = (self._stderr + payload)[-2000:]
        return message

    def exit_status(self) -> str:
        if self._outbox.stalled:
            return STALLED
        with _faults("ask how a container ended"):
            try:
                self._container.reload()
            except NotFound:
                return "the container was removed by somebody else"
            try:
                code = int(self._container.wait(timeout=5)["StatusCode"])
            except requests.exceptions.ReadTimeout:
                return f"container {self._container.status}, but its output is closed"
            self._container.reload()
        how = f"exit code {code}"
        if self._container.attrs.get("State", {}).get("OOMKilled"):
            how += " (out of memory)"
        elif code == 137:
            how += " (killed)"
        return how + last_words(self._stderr)

    def kill(self) -> None:
        # Where the daemon does not answer, the engine's close or a later sweep removes it.
        with contextlib.suppress(EngineGone, CannotStart), _faults("remove a container"):
            self._container.remove(force=True)
        with contextlib.suppress(OSError):
            self._socket.close()
        with contextlib.suppress(OSError, AttributeError):
            self._stream.close()


class Frames:
    """Takes the daemon's multiplexed stream apart: a header of stream number and length, then that many bytes."""

    HEADER = struct.Struct(">BxxxL")

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        self._buffer += data
        while len(self._buffer) >= self.HEADER.size:
            number, length = self.HEADER.unpack_from(self._buffer)
            end = self.HEADER.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[self.HEADER.size : end])
            del self._buffer[:end]
            yield number, payload


def made_of(order: Order, image: Image) -> dict[str, str]:
    """What results say of an image. One for a GPU may have been made by hand: only its label says our recipe."""
    facts = {"image_digest": image.id or "", "base_digest": digest_in(image.labels.get(LABEL, ""))}
    if order.evidence is Evidence.DEVICE:
        names = {"recipe_digest": RECIPE, "hashes": HASHES}
        facts |= {name: said for name, label in names.items() if (said := image.labels.get(label, ""))}
    return facts


def has_cdi(client: DockerClient, order: Order) -> bool:
    """Whether an order's GPU is to be named by CDI; the daemon is asked only where there is one."""
    return order.evidence is Evidence.DEVICE and by_cdi(client.info())


def by_cdi(info: Mapping[str, Any]) -> bool:
    """Whether a GPU is named by CDI, from what a daemon says of itself: NVIDIA's runtime is not there, its CDI file is.

    https://github.com/cncf-tags/container-device-interface
    """
    folders = info.get("CDISpecDirs") or ()
    return "nvidia" not in info.get("Runtimes", {}) and any(any(Path(one).glob("nvidia*")) for one in folders)


@contextlib.contextmanager
def _faults(attempt: str) -> Iterator[None]:
    """Docker's many exceptions as the two that matter: the daemon refused this, or it does not answer at all."""
    try:
        yield
    except NotFound as error:
        raise CannotStart(f"cannot {attempt}: {clean(str(error.explanation), 500)}") from error
    except APIError as error:
        said = clean(str(error.explanation or error), 500)
        if "no space left" in said:
            raise NotNow(f"cannot {attempt}: Docker's disk is full: {said}; free some, `docker system df`") from error
        passing = error.status_code in (requests.codes.conflict, *BUSY)
        raise (NotNow if passing else CannotStart)(f"cannot {attempt}: Docker refused: {said}") from error
    except (DockerException, requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
        raise EngineGone(f"cannot {attempt}: the Docker daemon does not answer ({type(error).__name__})") from error
