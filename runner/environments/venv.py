"""Local environments: a venv per release, built beside its place, checked, then moved there in one step.

.runner/envs/vllm-0.32.0-<digest>          a link, which appears only once what it names has been checked
.runner/envs/vllm-0.32.0-<digest>.<random> what it names; venvs cannot be moved, links to them can
.runner/envs/vllm-0.32.0-<digest>.log      of the newest build
.runner/envs/base-<digest>                 what overlays share; they name the link, so that it can be built again
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.environments import layers, progress, steps
from runner.environments.locks import if_free, only_one
from runner.environments.progress import Say
from runner.environments.recipe import Layer, Lock, Recipe, digest
from runner.errors import EnvironmentBroken

ROOT = Path(".runner/envs")
FORMAT = "2"  # raise it when the way of building changes, so that what an older runner built is not taken
NEEDED_BYTES = 6_000_000_000
NEEDED_BYTES_OVER = 1_500_000_000  # for an overlay: a CUDA wheel of vLLM, and the same unpacked
SHARED = "base"
NAMES = ("vllm-*", f"{SHARED}-*")
STAMP = "stamp.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalEnvironment:
    """A venv that was checked; `digest` names what it was built from, `versions` what it holds."""

    place: Path
    """The link to it, which stays when it is built again."""
    python: Path
    digest: str
    release: str
    """The value of the vllm axis; empty for what overlays share."""
    versions: Mapping[str, str]
    over: str = ""
    """The name of the place that it is laid over; empty where it stands by itself."""
    backends: tuple[str, ...] = ()
    """The attention backends that its vLLM has; empty where its check could not tell."""


def ensure_local(layer: Layer, *, root: Path = ROOT, say: Say) -> LocalEnvironment:
    """The environment of a layer, built where it is absent or broken; EnvironmentBroken where that fails.

    What it is laid over is built first.
    """
    what = f"environment for {layer.title}"
    base = interpreter(layer)
    below = ensure_local(layer.over, root=root, say=say) if layer.over else None
    try:
        key = digest(FORMAT, _version(base), layer.digest)
        root = root.absolute()
        name = f"{stem(layer.release)}-{key}"
        place = root / name
        if found := whole(place):
            return found
        root.mkdir(parents=True, exist_ok=True)
        with only_one(root / f"{name}.lock", what, say):
            if found := whole(place):  # built while we waited
                return found
            if place.is_symlink():
                say(f"{what}: what is in {place} is broken, building it again")
            sweep(root, held=name)
            _require_space(root, NEEDED_BYTES_OVER if below else NEEDED_BYTES, what)
            return _build(layer, base, below, key, place, what, say)
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentBroken(f"{what}: {error}: is the place writable, and is there room on its disk?") from error


def whole(place: Path) -> LocalEnvironment | None:
    """The environment at a place where it, and what it is laid over, is as it was when it was checked.

    Reads no file but the stamps.
    """
    try:
        stamp = json.loads((place / STAMP).read_text())
        found = LocalEnvironment(
            place=place,
            python=place.resolve() / "bin/python",
            digest=stamp["digest"],
            release=stamp["release"],
            versions=stamp["versions"],
            over=stamp.get("over", ""),
            backends=tuple(stamp.get("backends", ())),
        )
        subprocess.run([found.python, "-I", "-S", "-c", ""], check=True, capture_output=True, timeout=30)
        # As lists, which is what JSON makes of pairs.
        as_built = stamp["extent"] == list(extent(place)) and place.name.endswith(found.digest)
        as_built &= place.name.startswith(f"{SHARED}-") or isinstance(found.versions.get("vllm"), str)
        return found if as_built and (not found.over or whole(place.with_name(found.over))) else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, subprocess.SubprocessError):
        return None  # a stamp that was changed may hold anything


def extent(place: Path) -> tuple[int, int]:
    """Number and bytes of the installed files, without bytecode, which comes by itself."""
    count = total = 0
    folders = [str(place.resolve() / "lib")]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        folders.append(entry.path)
                else:
                    count += 1
                    total += entry.stat(follow_symlinks=False).st_size
    return count, total


def interpreter(layer: Layer) -> Path:
    """The Python that the layer's lock is for: this one, or one on the PATH."""
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    if layer.python == this:
        return Path(sys.executable)
    if found := shutil.which(f"python{layer.python}"):
        return Path(found)
    raise EnvironmentBroken(
        f"environment for {layer.title}: its lock is for Python {layer.python}, the runner has {this}, and there is no "
        f"python{layer.python} on the PATH: install it"
    )


def sweep(root: Path, *, held: str = "") -> list[Path]:
    """Remove what killed builds and replaced environments left, where nobody builds or uses it; gives what it removed.

    `held` names the environment whose lock the caller has.
    """
    removed = []
    for folder in sorted(path for pattern in NAMES for path in root.glob(f"{pattern}.*")):
        name = re.sub(r"\.[0-9a-f]{8}$", "", folder.name)
        place = root / name
        if name == folder.name or folder.is_symlink() or not folder.is_dir():
            continue
        with contextlib.nullcontext(True) if name == held else if_free(root / f"{name}.lock") as free:
            if free and place.resolve() != folder.resolve() and not in_use(folder):
                shutil.rmtree(folder, ignore_errors=True)
                removed.append(folder)
    return removed


def in_use(folder: Path) -> bool:
    """Whether a process was started with the Python in this folder."""
    prefix = os.fsencode(folder.resolve()) + b"/"
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if line.read_bytes().startswith(prefix):
                return True
        except OSError:  # it has just ended, or is another user's
            continue
    return False


def stem(release: str) -> str:
    """What a place is named after, before its digest."""
    return f"vllm-{re.sub(r'[^A-Za-z0-9.]', '_', release)}" if release else SHARED


def _build(
    layer: Layer, base: Path, below: LocalEnvironment | None, key: str, place: Path, what: str, say: Say
) -> LocalEnvironment:
    log = place.with_name(f"{place.name}.log")
    log.unlink(missing_ok=True)
    folder = place.with_name(f"{place.name}.{secrets.token_hex(4)}")
    python = folder / "bin/python"
    versions: dict[str, str] = {}
    backends: tuple[str, ...] = ()
    try:
        if isinstance(layer, Lock):
            layers.install(layer, folder, base=base, log=log, what=what, say=say)
        else:
            assert below
            if isinstance(layer, Recipe):
                layers.lay(layer, folder, below.place, base=base, log=log, what=what, say=say)
                versions, backends = _check(layer, python, log, f"{what}: checking that it imports", say)
            else:
                # Not checked: its release was, and what the candidate breaks is what the cells are to find.
                layers.edit(layer, folder, below.place, base=base, log=log, what=what, say=say)
                versions = dict(below.versions)
        over = below.place.name if below else ""
        stamp = {"digest": key, "release": layer.release, "versions": versions, "over": over, "backends": backends}
        (folder / STAMP).write_text(json.dumps({**stamp, "extent": extent(folder)}, indent=1))
        link = folder.with_suffix(".link")
        link.unlink(missing_ok=True)  # of a build that was killed
        link.symlink_to(folder.name)
        replaced = place.resolve() if place.is_symlink() else None
        link.replace(place)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if replaced and not in_use(replaced):
        shutil.rmtree(replaced, ignore_errors=True)
    say(f"{what}: ready in {place}")
    return LocalEnvironment(
        place=place, python=python, digest=key, release=layer.release, versions=versions, over=over, backends=backends
    )


def _check(recipe: Recipe, python: Path, log: Path, what: str, say: Say) -> tuple[dict[str, str], tuple[str, ...]]:
    """The versions that the check found, and the attention backends of its vLLM."""
    output = steps.run([str(python), "-I", str(recipe.check), recipe.expected], log=log, what=what, say=say)
    try:
        found = json.loads(output.strip().splitlines()[-1])
        backends = tuple(str(name) for name in found.pop("backends", ()))
        assert isinstance(found["vllm"], str)
        return {str(name): str(version) for name, version in found.items()}, backends
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:
        raise steps.broken(what, output, log) from error


def _version(python: Path) -> str:
    """Of the interpreter to the last digit: a venv belongs to the one it was made with."""
    if python == Path(sys.executable):
        return sys.version
    return subprocess.run([python, "-VV"], check=True, capture_output=True, text=True, timeout=30).stdout


def _require_space(root: Path, needed: int, what: str) -> None:
    free = shutil.disk_usage(root).free
    if free < needed:
        raise EnvironmentBroken(
            f"{what}: needs about {progress.size(needed)} of disk, and {root} has {progress.size(free)} left: "
            "free some space, for example with `runner env clean`"
        )
