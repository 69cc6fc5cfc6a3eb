"""What the daemon is given to build an image of a layer: its Dockerfile, and all that the Dockerfile names."""

import contextlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient
from docker.errors import NotFound
from docker.models.containers import Container

from runner.environments.edits import edits
from runner.environments.held import is_held, is_wheel
from runner.environments.recipe import Edited, Layer, Lock, Recipe, shipped, sources
from runner.patches import PACKAGE


def dockerfile(layer: Layer) -> Path:
    """What builds this kind of layer."""
    names = {Lock: "cuda" if layer.cuda else "cpu", Recipe: "overlay", Edited: "candidate"}
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
                others = [one for one in layer.packages if not is_held(one)]
                named = (f"/context/wheels/{Path(one).name}" if is_wheel(one) else one for one in others)
                _add(tar, "packages.txt", "".join(f"{one}\n" for one in named).encode())
                _add(tar, "held.txt", "".join(f"{one}\n" for one in layer.packages if is_held(one)).encode())
                tar.add(layer.check, "check.py")
                for path in sources(layer.plugin):
                    tar.add(path, f"plugin/{path.relative_to(layer.plugin)}")
            case Edited():
                site = f"lib/python{layer.python}/site-packages"
                with _release_in(client, base, f"/opt/vllm/{site}") as release:
                    changed = edits(layer.candidate, release)
                gone = [f"{site}/{name}\n" for name, data in changed.items() if data is None]
                written = [f"{site}/{name}" for name, data in changed.items() if data is not None]
                _add(tar, "gone.txt", "".join(gone).encode(errors="surrogateescape"))
                compiled = "".join(f"/opt/vllm/{name}\n" for name in written if name.endswith(".py"))
                _add(tar, "written.txt", compiled.encode(errors="surrogateescape"))
                for name, data in changed.items():
                    if data is not None:
                        _add(tar, f"files/{site}/{name}", data)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


@dataclass(frozen=True, slots=True)
class _InImage:
    """The vllm package of an image; `container` is made of it and not started."""

    client: DockerClient
    image: str
    site: str
    container: Container

    def read(self, name: str) -> bytes | None:
        try:
            pieces, _ = self.container.get_archive(f"{self.site}/{name}")
        except NotFound:
            return None
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
            found = tar.extractfile(tar.getmembers()[0])
            return found.read() if found else None

    def digests(self) -> dict[str, str]:
        """As `edits` wants them, in one go: thousands of files, one by one, take longer than the build."""
        said = self.client.containers.run(
            self.image,
            [PACKAGE, "-type", "f", "!", "-name", "*.pyc", "-exec", "sha256sum", "{}", "+"],
            entrypoint=["find"],
            working_dir=self.site,
            network_disabled=True,
            remove=True,
        )
        lines = said.decode(errors="surrogateescape").splitlines()
        return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


@contextlib.contextmanager
def _release_in(client: DockerClient, image: str, site: str) -> Iterator[_InImage]:
    container = client.containers.create(image, "true")  # never started; a base may name no command
    try:
        yield _InImage(client, image, site, container)
    finally:
        container.remove()
