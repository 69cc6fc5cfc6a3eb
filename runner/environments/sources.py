"""The Python files of a release: of an environment that is built, of a wheel that is kept, or is downloaded now."""

import hashlib
import json
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from runner.environments import held, layers, steps, venv
from runner.environments.edits import Files
from runner.environments.progress import Say
from runner.environments.recipe import recipe_for
from runner.errors import EnvironmentBroken
from runner.matrix import Matrix
from runner.patches import PACKAGE

ROOT = Path(".runner/sources")
_DOWNLOAD = ("-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet")


def at_hand(chart: Matrix, release: str) -> Files | None:
    """What can be read without a network; None where there is nothing of this release."""
    for place in sorted(venv.ROOT.glob(f"{venv.stem(release)}-*")):
        if place.is_symlink() and _release_of(place) == release:
            return layers.Installed(layers.site_packages(place))
    kept = _kept(chart, release)
    return _open(kept.absolute()) if kept.exists() else None


def obtain(chart: Matrix, release: str, say: Say) -> Files:
    """What can be read of this release, from its wheel where nothing is at hand; EnvironmentBroken without a network.

    Kept are the texts: compiled code is most of a wheel, and nobody reads it.
    """
    if found := at_hand(chart, release):
        return found
    package, kept = chart.environments[release].packages[0], _kept(chart, release)
    ROOT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        log, what = kept.with_suffix(".log"), f"reading vllm {release}: downloading {held.named(package)}"
        (asked,) = held.calls([package], Path(folder, "packages.txt"))
        # The hash is of the wheel for the Python of the lock, whatever Python asks for it.
        python = ("--python-version", recipe_for(chart, release).python) if held.is_held(package) else ()
        command = [sys.executable, *_DOWNLOAD, *python, "--dest", folder, *asked]
        steps.run(command, log=log, what=what, say=say)
        texts = Path(folder, "texts")
        try:
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(texts, "w", zipfile.ZIP_DEFLATED) as target:
                for name in source.namelist():
                    if not name.endswith((".so", "/")):
                        target.writestr(name, source.read(name))
        except (ValueError, zipfile.BadZipFile) as error:
            raise EnvironmentBroken(f"{what}: what came is no wheel: {error}; the log: {log}") from None
        texts.replace(kept)
    return _open(kept.absolute())


def clean() -> int:
    """Remove the wheels' texts; gives the bytes freed."""
    freed = sum(path.stat().st_size for path in ROOT.glob("*") if path.is_file())
    shutil.rmtree(ROOT, ignore_errors=True)
    return freed


@dataclass(frozen=True, slots=True)
class Kept:
    """The texts of a wheel in an archive."""

    archive: zipfile.ZipFile

    def read(self, name: str) -> bytes | None:
        return self.archive.read(name) if name in self.archive.NameToInfo else None

    def digests(self) -> Mapping[str, str]:
        names = (name for name in self.archive.namelist() if name.startswith(f"{PACKAGE}/"))
        return {name: hashlib.sha256(self.archive.read(name)).hexdigest() for name in names}


@lru_cache
def _open(path: Path) -> Kept:
    return Kept(zipfile.ZipFile(path))


def _kept(chart: Matrix, release: str) -> Path:
    return ROOT / f"{held.named(chart.environments[release].packages[0]).replace('==', '-')}.zip"


def _release_of(place: Path) -> str:
    try:
        return str(json.loads((place / venv.STAMP).read_text())["release"])
    except (OSError, ValueError, KeyError):
        return ""
