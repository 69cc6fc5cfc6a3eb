"""Docker images: one per release, named by the digest of all that built it, and made without secrets in the daemon."""

import contextlib
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient
from docker.errors import APIError, DockerException, ImageNotFound

from runner.environments import progress, steps
from runner.environments.base_image import BaseImage, base_image
from runner.environments.locks import only_one
from runner.environments.progress import Say
from runner.environments.recipe import Recipe, digest, shipped, sources
from runner.environments.venv import interpreter
from runner.errors import EnvironmentBroken
from runner.messages import clean

ROOT = Path(".runner/images")
REPOSITORY = "attnmatrix-cpu"
RELEASE = "attnmatrix.release"  # label of a finished image
STAGE = "attnmatrix.stage"  # label of a build stage, see cpu.Dockerfile
NEEDED_BYTES = 3_500_000_000
BUILD_TIMEOUT_S = 1800


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """A built image: `id` is its own digest and what results record, `tag` names what it was built from."""

    id: str
    tag: str
    release: str


def ensure_image(client: DockerClient, recipe: Recipe, *, root: Path = ROOT, say: Say) -> Image:
    """The image of a recipe, built where there is none; EnvironmentBroken where that fails."""
    what = f"image for vllm {recipe.release}"
    dockerfile = shipped("containers/cpu.Dockerfile")
    try:
        base = base_image(client, say=say)
        key = digest(base.id, dockerfile, recipe.lock, recipe.plugin, recipe.check)
        tag = f"{REPOSITORY}:{key}"
        if found := _existing(client, tag, recipe):
            return found
        root = root.absolute()
        root.mkdir(parents=True, exist_ok=True)
        with only_one(root / f"{key}.lock", what, say):
            if found := _existing(client, tag, recipe):  # built while we waited
                return found
            _require_space(root, what)
            return _build(client, recipe, base, tag, key, root, what, say)
    except OSError as error:  # requests' exceptions are OSErrors too
        raise EnvironmentBroken(
            f"{what}: {clean(str(error), 500)}: does the daemon run, is there disk left?"
        ) from error
    except DockerException as error:
        raise EnvironmentBroken(f"{what}: Docker refused: {clean(str(error), 500)}") from error


def _existing(client: DockerClient, tag: str, recipe: Recipe) -> Image | None:
    with contextlib.suppress(ImageNotFound):
        return Image(id=str(client.images.get(tag).id), tag=tag, release=recipe.release)
    return None


def _build(
    client: DockerClient, recipe: Recipe, base: BaseImage, tag: str, key: str, root: Path, what: str, say: Say
) -> Image:
    log = root / f"{key}.log"
    log.unlink(missing_ok=True)
    with _scratch(root, key) as scratch:
        wheels = scratch / "wheels"
        _download(recipe, scratch, wheels, log, what, say)
        context = scratch / "context.tar"
        say(f"{what}: packing {progress.size(sum(wheel.stat().st_size for wheel in wheels.iterdir()))} for the daemon")
        _pack(context, recipe, wheels)
        shutil.rmtree(wheels)
        try:
            _run_build(client, context, base, tag, key, recipe, log, what, say)
        finally:
            # The stages hold all of it a second time.
            with contextlib.suppress(APIError):
                client.images.prune(filters={"dangling": True, "label": f"{STAGE}={key}"})
    found = _existing(client, tag, recipe)
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


def _download(recipe: Recipe, scratch: Path, wheels: Path, log: Path, what: str, say: Say) -> None:
    """All wheels of the lock, by the host's pip: its settings and credentials need not be where the image is built."""
    python = scratch / "pip/bin/python"  # a pip of our own: the runner's Python may have none
    steps.run(
        [str(interpreter(recipe)), "-m", "venv", str(scratch / "pip")],
        log=log,
        what=f"{what}: making a place to download (log: {log})",
        say=say,
    )
    command = [str(python), "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    steps.run(
        [*command, "--dest", str(wheels), "--requirement", str(recipe.lock)],
        log=log,
        what=f"{what}: downloading what {recipe.lock.name} names",
        say=say,
        progress=steps.pip_progress(recipe.lock),
    )


def _pack(context: Path, recipe: Recipe, wheels: Path) -> None:
    with tarfile.open(context, "w") as tar:
        tar.add(shipped("containers/cpu.Dockerfile"), "Dockerfile")
        tar.add(recipe.lock, "lock.txt")
        tar.add(recipe.check, "check.py")
        for path in sources(recipe.plugin):
            tar.add(path, f"plugin/{path.relative_to(recipe.plugin)}")
        tar.add(wheels, "wheels")


def _run_build(
    client: DockerClient,
    context: Path,
    base: BaseImage,
    tag: str,
    key: str,
    recipe: Recipe,
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
            buildargs={"BASE_IMAGE": base.name, "BUILD_ID": key},
            labels={RELEASE: recipe.release},
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


def _require_space(root: Path, what: str) -> None:
    free = shutil.disk_usage(root).free
    if free < NEEDED_BYTES:
        raise EnvironmentBroken(
            f"{what}: needs about {progress.size(NEEDED_BYTES)} of disk to prepare, and {root} has "
            f"{progress.size(free)} left: free some space, for example with `runner env clean`"
        )
