"""Whether a Docker daemon answers, and if not, which of the usual reasons it is."""

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

import docker
import requests
from docker.errors import DockerException

from runner.errors import MachineError
from runner.messages import clean


@dataclass(frozen=True, slots=True)
class Daemon:
    """What was found: a version where a daemon answers, else the trouble and what to do about it."""

    version: str = ""
    trouble: str = ""
    advice: str = ""

    @property
    def answers(self) -> bool:
        return bool(self.version)


def examine(timeout_s: int = 5) -> Daemon:
    """Ask the daemon that DOCKER_HOST names, or the one on the standard socket."""
    try:
        client = docker.from_env(timeout=timeout_s)
        try:
            return Daemon(version=str(client.version()["Version"]))
        finally:
            client.close()
    except (DockerException, requests.exceptions.RequestException, OSError, KeyError) as error:
        return _explain(error)


def connect(timeout_s: int = 60) -> docker.DockerClient:
    """A client of a daemon that answers; MachineError with what to do where none does."""
    daemon = examine()
    if not daemon.answers:
        raise MachineError(f"Docker: {daemon.trouble}: {daemon.advice}")
    return docker.from_env(timeout=timeout_s)


CONTAINERD, CONTAINERD_ROOT = "io.containerd.snapshotter.v1", Path("/var/lib/containerd")
"""Where the daemon says this of its driver, containerd keeps the images, by default there (docs.docker.com, "containerd
image store")."""


def data_root(client: docker.DockerClient) -> Path | None:
    """The folder of the daemon's images; None where it is not on a disk of this machine, as in a virtual one.

    A path alone says nothing: in a container, the daemon behind a socket is that of the host, by another name.
    """
    info = client.info()
    root = Path(info["DockerRootDir"])
    if ["driver-type", CONTAINERD] in (info.get("DriverStatus") or []):
        root = CONTAINERD_ROOT
    try:
        return root if info.get("Name") == platform.node() and root.is_dir() else None
    except OSError:  # nor may this user look there
        return None


def _explain(error: Exception) -> Daemon:
    where = os.environ.get("DOCKER_HOST") or "/var/run/docker.sock"
    instead = "or run cells without containers: --engine local"
    match _cause(error):
        case PermissionError():
            return Daemon(
                trouble=f"a daemon may be there, but {where} is not open to this user",
                advice=f"join its group (usually: usermod -aG docker {_user()}, then log in again), {instead}",
            )
        case FileNotFoundError() if not shutil.which("dockerd") and not shutil.which("docker"):
            return Daemon(
                trouble="is not installed",
                advice=f"install Docker (on Debian and Ubuntu: apt-get install docker.io), {instead}",
            )
        case FileNotFoundError() | ConnectionRefusedError():
            return Daemon(
                trouble=f"no daemon is running at {where}",
                advice=f"start it (systemctl start docker, or dockerd as root), {instead}",
            )
    return Daemon(
        trouble=f"the daemon at {where} does not answer: {clean(str(error), 200)}",
        advice=f"check DOCKER_HOST and the daemon's log, {instead}",
    )


def _cause(error: BaseException) -> OSError | None:
    """The system's own error under those of the SDK, requests and urllib3, which keep it in `args` or as a cause."""
    queue: list[BaseException] = [error]
    seen: set[int] = set()
    while queue:
        one = queue.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, PermissionError | FileNotFoundError | ConnectionRefusedError):
            return one
        near = (*one.args, one.__cause__, one.__context__, getattr(one, "reason", None))
        queue += [other for other in near if isinstance(other, BaseException)]
    return None


def _user() -> str:
    return os.environ.get("USER") or "$USER"
