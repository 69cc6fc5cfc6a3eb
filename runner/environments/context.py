"""What the daemon is given to build an image of a layer: its Dockerfile, and all that the Dockerfile names."""

import contextlib
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from docker import DockerClient
from docker.errors import NotFound

from runner.environments.edits import edits
from runner.environments.recipe import Edited, Layer, Lock, Recipe, is_wheel, shipped, sources
from runner.model import CandidateKind


def dockerfile(layer: Layer) -> Path:
    """What builds this kind of layer."""
    names = {Lock: "cpu", Recipe: "overlay", Edited: "candidate"}
    return shipped(f"containers/{names[type(layer)]}.Dockerfile")


def pack(client: DockerClient, context: Path, layer: Layer, base: str, wheels: Path) -> None:
    """Write the build context of a layer on the image `base` as a tar; UsageError for a patch that does not apply."""
    with tarfile.open(context, "w") as tar:
        tar.add(dockerfile(layer), "Dockerfile")
        match layer:
            case Lock():
                tar.add(wheels, "wheels")
                tar.add(layer.path, "lock.txt")
            case Recipe():
                tar.add(wheels, "wheels")
                named = (f"/context/wheels/{Path(one).name}" if is_wheel(one) else one for one in layer.packages)
                _add(tar, "packages.txt", "".join(f"{one}\n" for one in named).encode())
                tar.add(layer.check, "check.py")
                for path in sources(layer.plugin):
                    tar.add(path, f"plugin/{path.relative_to(layer.plugin)}")
            case Edited():
                tar.add(layer.check, "check.py")
                site = f"lib/python{layer.python}/site-packages"
                with _release_files(client, base, f"/opt/vllm/{site}") as read:
                    # Of a checkout all is taken: to ask for thousands of files, one by one, takes longer.
                    is_patch = layer.candidate.kind is CandidateKind.PATCH
                    changed = edits(layer.candidate, read if is_patch else lambda _: None)
                gone = [f"{site}/{name}\n" for name, data in changed.items() if data is None]
                _add(tar, "gone.txt", "".join(gone).encode())
                for name, data in changed.items():
                    if data is not None:
                        _add(tar, f"files/{site}/{name}", data)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


@contextlib.contextmanager
def _release_files(client: DockerClient, image: str, site: str) -> Iterator[Callable[[str], bytes | None]]:
    """Reads files of an image's vllm package, by paths such as `vllm/config.py`, out of a container not started."""
    container = client.containers.create(image)

    def read(name: str) -> bytes | None:
        try:
            pieces, _ = container.get_archive(f"{site}/{name}")
        except NotFound:
            return None
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
            found = tar.extractfile(tar.getmembers()[0])
            return found.read() if found else None

    try:
        yield read
    finally:
        container.remove()
