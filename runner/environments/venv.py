"""Local environments: a venv per release, built beside its place, checked, then moved there in one step.

.runner/envs/vllm-0.32.0-<digest>          a link, which appears only once what it names has been checked
.runner/envs/vllm-0.32.0-<digest>.<random> what it names; venvs cannot be moved, links to them can
.runner/envs/vllm-0.32.0-<digest>.log      of the newest build
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

from runner.environments import progress, steps
from runner.environments.locks import if_free, only_one
from runner.environments.progress import Say
from runner.environments.recipe import Recipe, digest
from runner.errors import EnvironmentBroken

ROOT = Path(".runner/envs")
FORMAT = "1"  # raise it when the way of building changes, so that what an older runner built is not taken
NEEDED_BYTES = 6_000_000_000
STAMP = "stamp.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalEnvironment:
    """A venv that was checked; `digest` names what it was built from, `versions` what it holds."""

    python: Path
    digest: str
    release: str
    versions: Mapping[str, str]


def ensure_local(recipe: Recipe, *, root: Path = ROOT, say: Say) -> LocalEnvironment:
    """The environment of a recipe, built where it is absent or broken; EnvironmentBroken where that fails."""
    what = f"environment for vllm {recipe.release}"
    base = interpreter(recipe)
    try:
        key = digest(FORMAT, _version(base), recipe.lock, recipe.plugin, recipe.check)
        root = root.absolute()
        name = f"vllm-{re.sub(r'[^A-Za-z0-9.]', '_', recipe.release)}-{key}"
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
            _require_space(root, what)
            return _build(recipe, base, key, place, what, say)
    except (OSError, subprocess.SubprocessError) as error:
        raise EnvironmentBroken(f"{what}: {error}: is the place writable, and is there room on its disk?") from error


def whole(place: Path) -> LocalEnvironment | None:
    """The environment at a place where it is as it was when it was checked; reads no file but the stamp."""
    try:
        stamp = json.loads((place / STAMP).read_text())
        found = LocalEnvironment(
            python=place.resolve() / "bin/python",
            digest=stamp["digest"],
            release=stamp["release"],
            versions=stamp["versions"],
        )
        subprocess.run([found.python, "-I", "-S", "-c", ""], check=True, capture_output=True, timeout=30)
        # As lists, which is what JSON makes of pairs.
        return found if stamp["extent"] == list(extent(place)) and place.name.endswith(found.digest) else None
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError):
        return None


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


def interpreter(recipe: Recipe) -> Path:
    """The Python that the recipe's lock is for: this one, or one on the PATH."""
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    if recipe.python == this:
        return Path(sys.executable)
    if found := shutil.which(f"python{recipe.python}"):
        return Path(found)
    raise EnvironmentBroken(
        f"environment for vllm {recipe.release}: {recipe.lock.name} is for Python {recipe.python}, the runner has "
        f"{this}, and there is no python{recipe.python} on the PATH: install it"
    )


def sweep(root: Path, *, held: str = "") -> list[Path]:
    """Remove what killed builds and replaced environments left, where nobody builds or uses it; gives what it removed.

    `held` names the environment whose lock the caller has.
    """
    removed = []
    for folder in sorted(root.glob("vllm-*.*")):
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


def _build(recipe: Recipe, base: Path, key: str, place: Path, what: str, say: Say) -> LocalEnvironment:
    log = place.with_name(f"{place.name}.log")
    log.unlink(missing_ok=True)
    folder = place.with_name(f"{place.name}.{secrets.token_hex(4)}")
    try:
        steps.run([str(base), "-m", "venv", str(folder)], log=log, what=f"{what}: making a venv (log: {log})", say=say)
        python = folder / "bin/python"
        pip = [str(python), "-m", "pip", "install", "--no-deps", "--no-compile", "--no-input"]
        steps.run(
            [*pip, "--only-binary=:all:", "--requirement", str(recipe.lock)],
            log=log,
            what=f"{what}: installing from {recipe.lock.name}",
            say=say,
            progress=steps.pip_progress(recipe.lock),
        )
        steps.run(
            [*pip, "--no-index", "--no-build-isolation", str(recipe.plugin)],
            log=log,
            what=f"{what}: installing the platform plugin",
            say=say,
        )
        versions = _check(recipe, python, log, f"{what}: checking that it imports", say)
        _write_stamp(folder, {"digest": key, "release": recipe.release, "versions": versions})
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
    return LocalEnvironment(python=python, digest=key, release=recipe.release, versions=versions)


def _check(recipe: Recipe, python: Path, log: Path, what: str, say: Say) -> dict[str, str]:
    output = steps.run([str(python), "-I", str(recipe.check)], log=log, what=what, say=say)
    try:
        versions = json.loads(output.strip().splitlines()[-1])
        assert isinstance(versions, dict)
    except (ValueError, IndexError, AssertionError) as error:
        raise steps.broken(what, output, log) from error
    return {str(name): str(version) for name, version in versions.items()}


def _write_stamp(folder: Path, stamp: dict[str, object]) -> None:
    (folder / STAMP).write_text(json.dumps({**stamp, "extent": extent(folder)}, indent=1))


def _version(python: Path) -> str:
    """Of the interpreter to the last digit: a venv belongs to the one it was made with."""
    if python == Path(sys.executable):
        return sys.version
    return subprocess.run([python, "-VV"], check=True, capture_output=True, text=True, timeout=30).stdout


def _require_space(root: Path, what: str) -> None:
    free = shutil.disk_usage(root).free
    if free < NEEDED_BYTES:
        raise EnvironmentBroken(
            f"{what}: needs about {progress.size(NEEDED_BYTES)} of disk, and {root} has {progress.size(free)} left: "
            "free some space, for example with `runner env clean`"
        )
