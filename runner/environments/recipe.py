"""What an environment is made from, layer by layer: a lock, and a release of vLLM with our plugin; and its digest."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UsageError
from runner.matrix import Matrix

_PACKAGE = Path(__file__).parents[1]
_PYTHON = re.compile(r"^# python: (3\.\d+)$", re.MULTILINE)
_VERSION = re.compile(r"\d+(\.\d+)+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """What releases share: every package that a lock names, and nothing of ours."""

    path: Path
    """Every package as `name==version`; a line `# python: 3.11` says which Python it was made for."""

    release = ""
    over = None

    @property
    def digest(self) -> str:
        return digest(self.path)

    @property
    def title(self) -> str:
        """What messages call the environment."""
        return f"what releases share ({self.path.name})"

    @property
    def python(self) -> str:
        """The Python that the lock is for, such as `3.11`."""
        found = _PYTHON.search(self.path.read_text())
        if not found:
            raise UsageError(f"{self.path}: says not which Python it is for: add a line such as '# python: 3.11'")
        return found[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Everything that decides what one release's environment holds: a lock, and what is laid over it.

    Laid over means first on the path, with the packages of the lock behind.
    """

    release: str
    """The value of the vllm axis."""
    lock: Path
    packages: tuple[str, ...] = ()
    """As `name==version`, without what they depend on; empty where the lock has vLLM too."""
    plugin: Path
    check: Path

    @property
    def over(self) -> Lock:
        return Lock(path=self.lock)

    @property
    def digest(self) -> str:
        """Of all of it: what results record, and the same for a venv and an image."""
        return digest(self.over.digest, *self.packages, self.plugin, self.check)

    @property
    def title(self) -> str:
        """What messages call the environment."""
        return f"vllm {self.release}"

    @property
    def python(self) -> str:
        """The Python of the lock."""
        return self.over.python

    @property
    def expected(self) -> str:
        """The version of vLLM that must be found in it, or `any`: what check.py is told."""
        return self.release if _VERSION.fullmatch(self.release) else "any"


Layer = Lock | Recipe
"""What can be built: each over the one that its `over` names, which all that are over the same one share."""


def shipped(relative: str) -> Path:
    """A file or folder that ships with the runner: inside the package, or beside it in a checkout."""
    bundled = _PACKAGE / "_bundled" / relative
    return bundled if bundled.exists() else _PACKAGE.parent / relative


def recipe_for(chart: Matrix, release: str) -> Recipe:
    """The recipe of one value of the vllm axis; UsageError where the matrix or its lock does not have it."""
    if release not in chart.environments:
        known = ", ".join(chart.environments) or "none"
        raise UsageError(f"no environment for vllm {release}: the matrix has {known}")
    spec = chart.environments[release]
    lock = next((path for path in (Path(spec.lock), shipped(spec.lock)) if path.is_file()), None)
    if lock is None:
        raise UsageError(f"{spec.lock}: no such lock, which the matrix names for vllm {release}: correct environments:")
    return Recipe(
        release=release,
        lock=lock,
        packages=spec.packages,
        plugin=shipped("plugin"),
        check=shipped("containers/check.py"),
    )


def digest(*parts: str | Path) -> str:
    """Sixteen hex digits over texts, files and folders; the same sources give the same digest on every machine."""
    sha = hashlib.sha256()
    for part in parts:
        for name, data in _contents(part):
            for piece in (name.encode(), data):
                sha.update(len(piece).to_bytes(8, "big") + piece)  # with its length: no two lists run into one
    return sha.hexdigest()[:16]


def _contents(part: str | Path) -> list[tuple[str, bytes]]:
    if isinstance(part, str):
        return [("", part.encode())]
    if part.is_file():
        return [(part.name, part.read_bytes())]
    return [(str(path.relative_to(part)), path.read_bytes()) for path in sources(part)]


def sources(folder: Path) -> list[Path]:
    """The files of a source folder, without what Python or a build leaves there."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix in {".py", ".toml", ".md", ".typed"}
    )
