"""The runner on a machine whose GPU, driver and container toolkit are played: `python toolkit.py FOLDER doctor`.

The daemon asks the toolkit to put a GPU and its driver into a container. Here the request for that is taken out of what
the daemon is sent, and the played driver of FOLDER is mounted in its place.
"""

import sys
from pathlib import Path
from typing import Any

from docker.models.containers import Container, ContainerCollection
from docker.types import Mount

UUID = "GPU-11111111-2222-3333-4444-555555555555"
SYSTEM = "/usr/lib/x86_64-linux-gnu"  # where the toolkit mounts the driver's libraries, on Debian


def mounts(folder: Path) -> list[Mount]:
    """Of the driver's two libraries, and of the runtime above them."""
    inside = {
        f"{SYSTEM}/libcuda.so.1": "libcuda.so.1",
        f"{SYSTEM}/libnvidia-ml.so.1": "libnvidia-ml.so.1",
        "/played/libcudart.so.13": "libcudart.so.13",
    }
    return [Mount(path, str(folder / name), type="bind", read_only=True) for path, name in inside.items()]


VARIABLES = {"LD_PRELOAD": "/played/libcudart.so.13"}


def play(folder: Path) -> None:
    """Let each container that asks for the GPU have the played one; another request is none that the daemon takes."""
    real = ContainerCollection.create

    def create(self: ContainerCollection, image: Any, **options: Any) -> Container:
        if requests := options.pop("device_requests", None):
            (request,) = requests
            assert (request["DeviceIDs"], request["Capabilities"]) == ([UUID], [["gpu"]]), request
            options["mounts"] = [*options["mounts"], *mounts(folder)]
            options["environment"] = {**options["environment"], **VARIABLES}
        return real(self, image, **options)

    ContainerCollection.create = create  # type: ignore[method-assign]


if __name__ == "__main__":
    play(Path(sys.argv.pop(1)))
    from runner.cli import main

    sys.exit(main())
