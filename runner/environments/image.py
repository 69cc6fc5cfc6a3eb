"""Docker images: one per release, named by the digest of all that built it, and made without secrets in the daemon.

As for local environments, what releases share is an image of its own, and a release a layer on it.
"""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import requests
from docker import DockerClient
from docker.errors import APIError, DockerException, ImageNotFound

from runner.environments import held, progress, steps
from runner.environments.base_image import LABEL, BaseImage, base_image, present_base
from runner.environments.context import dockerfile, pack
from runner.environments.locks import only_one
from runner.environments.progress import Say
from runner.environments.recipe import Edited, Layer, Lock, Recipe, digest
from runner.environments.venv import interpreter
from runner.errors import EnvironmentBroken
from runner.messages import clean

ROOT = Path(".runner/images")
REPOSITORY, CUDA_REPOSITORY = "attnmatrix-cpu", "attnmatrix-cuda"
RELEASE = "attnmatrix.release"  # label of a finished image
RECIPE = "attnmatrix.recipe"  # label of one: the digest of what it was built from
HASHES = "attnmatrix.hashes"  # whether every package was held to one, as results say it
STAGE = "attnmatrix.stage"  # label of a build stage, see cpu.Dockerfile
NEEDED_BYTES = 3_500_000_000
NEEDED_BYTES_OVER = 1_000_000_000
NEEDED_BYTES_CUDA = 40_000_000_000  # while it is built: the wheels four times, what they unpack to twice
_DOWNLOAD = ("-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input")
BUILD_TIMEOUT_S = 1800


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """A built image: `id` is its own digest and what results record, `tag` names what it was built from."""

    id: str
    tag: str
    release: str


def ensure_image(client: DockerClient, layer: Layer, *, root: Path = ROOT, say: Say) -> Image:
    """The image of a layer, built where there is none; EnvironmentBroken where that fails.

    The image of what it is laid over is built first.
    """
    what = f"image for {layer.title}"
    try:
        base = _base_of(client, layer, root, say)
        tag = _tag(layer, base.id)
        key = tag.partition(":")[2]
        if found := _existing(client, tag, layer):
            _mark_used(client, tag)
            return found
        root = root.absolute()
        root.mkdir(parents=True, exist_ok=True)
        with only_one(root / f"{key}.lock", what, say):
            if found := _existing(client, tag, layer):  # built while we waited
                return found
            _require_space(root, _needed(layer), what)
            return _build(client, layer, base, tag, key, root, what, say)
    except OSError as error:  # requests' exceptions are OSErrors too
        raise EnvironmentBroken(
            f"{what}: {clean(str(error), 500)}: does the daemon run, is there disk left?"
        ) from error
    except DockerException as error:
        raise EnvironmentBroken(f"{what}: Docker refused: {clean(str(error), 500)}") from error


def find_image(client: DockerClient, layer: Layer) -> Image | None:
    """The image of a layer where it is there; builds and pulls nothing."""
    below = find_image(client, layer.over) if layer.over else present_base(client, cuda=layer.cuda)
    return _existing(client, _tag(layer, below.id), layer) if below else None


def _tag(layer: Layer, below: str) -> str:
    """The name of a layer's image on an image of that id."""
    repository = CUDA_REPOSITORY if layer.cuda else REPOSITORY
    return f"{repository}:{digest(below, dockerfile(layer), layer.digest)}"


def _base_of(client: DockerClient, layer: Layer, root: Path, say: Say) -> BaseImage:
    """What the layer's Dockerfile starts from."""
    if layer.over is None:
        return base_image(client, cuda=layer.cuda, say=say)
    below = ensure_image(client, layer.over, root=root, say=say)
    return BaseImage(name=below.tag, id=below.id, complete=True)  # its label says what it is built on in turn


def _existing(client: DockerClient, tag: str, layer: Layer) -> Image | None:
    with contextlib.suppress(ImageNotFound):
        return Image(id=str(client.images.get(tag).id), tag=tag, release=layer.release)
    return None


def _mark_used(client: DockerClient, tag: str) -> None:
    """Docker keeps when an image was last tagged, and not when it was last used: so it gets the tag that it has."""
    repository, _, word = tag.partition(":")
    with contextlib.suppress(APIError):
        client.api.tag(tag, repository, word)


def _build(
    client: DockerClient, layer: Layer, base: BaseImage, tag: str, key: str, root: Path, what: str, say: Say
) -> Image:
    log = root / f"{key}.log"
    log.unlink(missing_ok=True)
    with _scratch(root, key) as scratch:
        wheels = scratch / "wheels"
        wheels.mkdir()
        if not isinstance(layer, Edited):
            _download(layer, scratch, wheels, log, what, say)
        context = scratch / "context.tar"
        say(f"{what}: packing {progress.size(sum(wheel.stat().st_size for wheel in wheels.iterdir()))} for the daemon")
        pack(client, context, layer, base.name, wheels)
        shutil.rmtree(wheels)
        try:
            _run_build(client, context, base, tag, key, layer, log, what, say)
        finally:
            # The stages hold all of it a second time. To remove 11 GB takes minutes: the daemon goes on by itself.
            with contextlib.suppress(APIError, requests.exceptions.ReadTimeout):
                client.images.prune(filters={"dangling": True, "label": f"{STAGE}={key}"})
    found = _existing(client, tag, layer)
    if found is None:
        raise EnvironmentBroken(f"{what}: built, but there is no {tag}: was it removed? The whole log: {log}")
    say(f"{what}: ready as {tag}")
    return found


@contextlib.contextmanager
def _scratch(root: Path, key: str) -> Iterator[Path]:
    """A folder for the build, without what a killed build of the same image left; the caller holds the lock."""
    for left_over in root.glob(f"{key}.build-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{key}.build-", dir=root) as folder:
        yield Path(folder)


def _download(layer: Lock | Recipe, scratch: Path, wheels: Path, log: Path, what: str, say: Say) -> None:
    """The wheels that the recipe adds, by the host's pip: its settings and credentials stay out of the daemon."""
    python = scratch / "pip/bin/python"  # a pip of our own: the runner's Python may have none
    steps.run(
        [str(interpreter(layer)), "-m", "venv", str(scratch / "pip")],
        log=log,
        what=f"{what}: making a place to download (log: {log})",
        say=say,
    )
    if isinstance(layer, Lock):
        checked = [held.CHECKED] if layer.held else []
        names, wanted = f"what {layer.path.name} names", [[*checked, "--requirement", str(layer.path)]]
    else:
        names, wanted = ", ".join(map(held.named, layer.packages)), held.calls(layer.packages, scratch / "packages.txt")
    for one in wanted:
        steps.run(
            [str(python), *_DOWNLOAD, "--dest", str(wheels), *one],
            log=log,
            what=f"{what}: downloading {names}",
            say=say,
            progress=steps.pip_progress(layer.count) if isinstance(layer, Lock) else lambda _: "",
        )


def _run_build(
    client: DockerClient,
    context: Path,
    base: BaseImage,
    tag: str,
    key: str,
    layer: Layer,
    log: Path,
    what: str,
    say: Say,
) -> None:
    say(f"{what}: docker build")
    output: list[str] = []
    with context.open("rb") as tar, log.open("a", encoding="utf-8") as file:
        lines = client.api.build(
            fileobj=tar,
            custom_context=True,
            encoding=None,
            tag=tag,
            rm=True,
            forcerm=True,
            decode=True,
            timeout=BUILD_TIMEOUT_S,
            buildargs={"BASE_IMAGE": base.name, "BUILD_ID": key, **_own_arguments(layer)},
            labels={
                RELEASE: layer.release,
                RECIPE: layer.digest,
                HASHES: held.said(layer.unheld),
                **({LABEL: base.digest} if layer.over is None else {}),
            },
            # Our own base needs nothing from a network.
            network_mode="none" if base.complete else None,
        )
        for line in lines:
            text = str(line.get("stream", "") or line.get("error", ""))
            output.append(text)
            file.write(text)
            if found := re.match(r"Step (\d+/\d+) : (\w+)", text):
                say(f"{what}: docker build, step {found[1]} ({found[2]})")
            if "error" in line:
                raise steps.broken(f"{what}: docker build", "".join(output), log)


def _own_arguments(layer: Layer) -> dict[str, str]:
    match layer:
        case Recipe():
            return {"EXPECTED": layer.expected}
        case Lock() if layer.held and not layer.cuda:
            return {"CHECKED": held.CHECKED}
    return {}


def _needed(layer: Layer) -> int:
    """Bytes of disk."""
    if layer.over:
        return NEEDED_BYTES_OVER
    return NEEDED_BYTES_CUDA if layer.cuda else NEEDED_BYTES


def _require_space(root: Path, needed: int, what: str) -> None:
    free = shutil.disk_usage(root).free
    if free < needed:
        raise EnvironmentBroken(
            f"{what}: needs about {progress.size(needed)} of disk to prepare, and {root} has "
            f"{progress.size(free)} left: free some space, for example with `runner env clean`"
        )
