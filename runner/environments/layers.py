"""How a venv is filled: with all that a lock names, with what is laid over another venv, or with what replaces it."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.environments import held, steps
from runner.environments.edits import edits
from runner.environments.progress import Say
from runner.environments.recipe import Edited, Lock, Recipe
from runner.patches import PACKAGE

OVER = "attnmatrix_over.pth"
_PIP = ("-m", "pip", "install", "--no-deps", "--no-compile", "--no-input")


def install(lock: Lock, folder: Path, *, base: Path, log: Path, what: str, say: Say) -> None:
    """A venv with what the lock names."""
    steps.run([str(base), "-m", "venv", str(folder)], log=log, what=f"{what}: making a venv (log: {log})", say=say)
    steps.run(
        [
            *(str(folder / "bin/python"), *_PIP, "--only-binary=:all:"),
            *([held.CHECKED] if lock.held else []),
            *("--requirement", str(lock.path)),
        ],
        log=log,
        what=f"{what}: installing from {lock.path.name}",
        say=say,
        progress=steps.pip_progress(lock.count),
    )


def lay(recipe: Recipe, folder: Path, over: Path, *, base: Path, log: Path, what: str, say: Say) -> None:
    """A venv of the recipe's packages and the plugin alone: all else it finds in the venv `over`.

    To everything that is started with its Python it is an ordinary environment.
    """
    venv = [str(base), "-m", "venv", "--without-pip", str(folder)]
    steps.run(venv, log=log, what=f"{what}: making a venv (log: {log})", say=say)
    python = str(folder / "bin/python")
    # Before it finds the others, so that pip leaves those alone.
    pip = [str(over / "bin/python"), "-m", "pip", "--python", python, *_PIP[2:], "--only-binary=:all:"]
    names = ", ".join(map(held.named, recipe.packages))
    for asked in held.calls(recipe.packages, folder / "packages.txt"):
        steps.run([*pip, *asked], log=log, what=f"{what}: installing {names}", say=say)
    find(folder, over)
    steps.run(
        [python, *_PIP, "--no-index", "--no-build-isolation", str(recipe.plugin)],
        log=log,
        what=f"{what}: installing the platform plugin",
        say=say,
    )


def edit(edited: Edited, folder: Path, over: Path, *, base: Path, log: Path, what: str, say: Say) -> None:
    """A venv with the vllm package of the venv `over`, of which the candidate has replaced files.

    Files that are the same are the same on the disk too, and so is their bytecode: hard links, of which none is ever
    written through.
    """
    venv = [str(base), "-m", "venv", "--without-pip", str(folder)]
    steps.run(venv, log=log, what=f"{what}: making a venv (log: {log})", say=say)
    source, target = site_packages(over), site_packages(folder)
    changed = edits(edited.candidate, Installed(source))
    gone = sum(data is None for data in changed.values())
    say(f"{what}: files that differ from vllm {edited.over.release}: {len(changed) - gone}, that are gone: {gone}")
    for part in (source / PACKAGE, *source.glob(f"{PACKAGE}*.dist-info")):
        for path in part.rglob("*"):
            name = path.relative_to(source)
            if path.is_file() and _source_of(name).as_posix() not in changed:
                _link(path, target / name)
    for changed_name, data in changed.items():
        if data is not None:
            path = target / changed_name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    find(folder, over)
    _compile([target / name for name, data in changed.items() if data and name.endswith(".py")], folder, log)


def _compile(sources: Sequence[Path], folder: Path, log: Path) -> None:
    """Bytecode for the workers, which write none. A file that cannot be compiled is for the cells to find."""
    if not sources:
        return
    command = [str(folder / "bin/python"), "-I", "-m", "compileall", "-q", "-j0", "-i", "-"]
    with log.open("ab") as file:
        names = os.fsencode("\n".join(map(str, sources)))
        subprocess.run(command, input=names, stdout=file, stderr=subprocess.STDOUT, check=False)


@dataclass(frozen=True, slots=True)
class Installed:
    """The vllm package in a folder of site-packages."""

    site: Path

    def read(self, name: str) -> bytes | None:
        path = self.site / name
        return path.read_bytes() if path.is_file() else None

    def digests(self) -> dict[str, str]:
        """As `edits` wants them."""
        paths = (path for path in (self.site / PACKAGE).rglob("*") if path.is_file() and path.suffix != ".pyc")
        return {
            path.relative_to(self.site).as_posix(): "compiled"
            if path.suffix == ".so"
            else hashlib.sha256(path.read_bytes()).hexdigest()
            for path in paths
        }


def _source_of(name: Path) -> Path:
    """The source that bytecode was made of; anything else is its own."""
    if name.suffix != ".pyc":
        return name
    return name.parents[1] / f"{name.name.partition('.')[0]}.py"


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copy2(source, target)


def find(folder: Path, over: Path) -> None:
    """Put the packages of the venv `over` behind those of this one, on the path and for importlib.metadata.

    By addsitedir, so that the .pth files there count too; among them, what `over` itself is laid over.
    """
    (site_packages(folder) / OVER).write_text(f"import site; site.addsitedir({str(site_packages(over))!r})\n")


def site_packages(folder: Path) -> Path:
    """Of a venv."""
    (found,) = (folder / "lib").glob("python3.*/site-packages")
    return found
