"""What an environment is made from, layer by layer: a lock, a release with our plugin, a candidate; and the digest."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from runner.candidates import digest_of
from runner.environments.held import is_wheel, lock_is_held, named, pinned, unheld
from runner.errors import UsageError
from runner.matrix import Matrix
from runner.model import Candidate, CandidateKind

CUDA_IMAGE = "ATTNMATRIX_CUDA_IMAGE"
"""Names an image for this machine's GPU that was made by hand, for all cells of it."""

_PACKAGE = Path(__file__).parents[1]
_WAY = "2"  # raise it when a candidate is laid over its release in another way, so that what is built is not taken
_PYTHON = re.compile(r"^# python: (3\.\d+)$", re.MULTILINE)
_VERSION = re.compile(r"\d+(\.\d+)+")
_VLLM = re.compile(r"vllm(-cpu)?==")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """What releases share: every package that a lock names, and nothing of ours."""

    path: Path
    """Every package as `name==version` with the hash of its wheel; a line `# python: 3.11` says for which Python."""
    cuda: bool = False
    """Whether it is for machines with GPUs: see cuda.Dockerfile."""

    release = ""
    over = None

    @property
    def digest(self) -> str:
        return digest("cuda", self.path) if self.cuda else digest(self.path)

    @property
    def title(self) -> str:
        """What messages call the environment."""
        return f"what releases share ({self.path.name})"

    @property
    def count(self) -> int:
        """How many packages it names."""
        return len(pinned(self.path.read_text()))

    @property
    def held(self) -> bool:
        """Whether each package is held to the hash of its file."""
        return lock_is_held(self.path.read_text())

    @property
    def unheld(self) -> tuple[str, ...]:
        return () if self.held else (f"what {self.path.name} names",)

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
    packages: tuple[str, ...]
    """As `name==version`, with ` --hash=sha256:...` or without, or the absolute path of a wheel; without what they
    depend on."""
    plugin: Path
    check: Path
    cuda: bool = False

    @property
    def over(self) -> Lock:
        return Lock(path=self.lock, cuda=self.cuda)

    @property
    def digest(self) -> str:
        """Of all of it: what results record, and the same for a venv and an image."""
        packages = (Path(one) if is_wheel(one) else one for one in self.packages)
        return digest(self.over.digest, *packages, self.plugin, self.check)

    @property
    def title(self) -> str:
        """What messages call the environment."""
        return f"vllm {self.release}"

    @property
    def python(self) -> str:
        """The Python of the lock."""
        return self.over.python

    @property
    def unheld(self) -> tuple[str, ...]:
        """What is held to no hash: the index may give any file of that name and version."""
        return (*map(named, unheld(self.packages)), *self.over.unheld)

    @property
    def expected(self) -> str:
        """The version of vLLM that must be found in it, or `any`: what check.py is told."""
        return self.release if _VERSION.fullmatch(self.release) else "any"


@dataclass(frozen=True, kw_only=True, slots=True)
class Edited:
    """A release of which a candidate, a patch or a checkout, replaces files of the vllm package.

    It keeps the version of the release, by which the cases know its API.
    """

    candidate: Candidate
    over: Recipe

    @property
    def release(self) -> str:
        return self.candidate.name

    @property
    def digest(self) -> str:
        return digest(_WAY, self.over.digest, self.candidate.kind, self.candidate.digest)

    @property
    def title(self) -> str:
        """What messages call the environment."""
        return f"candidate {self.release} ({self.candidate.kind} over vllm {self.over.release})"

    @property
    def python(self) -> str:
        return self.over.python

    @property
    def unheld(self) -> tuple[str, ...]:
        return self.over.unheld

    @property
    def cuda(self) -> bool:
        return self.over.cuda


Layer = Lock | Recipe | Edited
"""What can be built: each over the one that its `over` names, which all that are over the same one share."""


def shipped(relative: str) -> Path:
    """A file or folder that ships with the runner: inside the package, or beside it in a checkout."""
    bundled = _PACKAGE / "_bundled" / relative
    return bundled if bundled.exists() else _PACKAGE.parent / relative


def cuda_lock(chart: Matrix, release: str) -> Path | None:
    """The lock for machines with GPUs of a value of the vllm axis, or of what it is over; None where none ships."""
    candidate = chart.environments[release].candidate
    path = shipped(f"containers/locks/cuda-{candidate.over if candidate else release}.txt")
    return path if path.is_file() else None


def recipe_for(chart: Matrix, release: str, *, cuda: bool = False) -> Recipe | Edited:
    """The recipe of one value of the vllm axis; UsageError where the matrix or its lock does not have it.

    `cuda`: for a machine with a GPU. Then vLLM is the wheel that it publishes for CUDA, and the lock is named after it.
    """
    if release not in chart.environments:
        known = ", ".join(chart.environments) or "none"
        raise UsageError(f"no environment for vllm {release}: the matrix has {known}")
    spec = chart.environments[release]
    candidate = spec.candidate
    over = candidate.over if candidate else release
    lock, others = _lock(chart, release, cuda=cuda), [one for one in spec.packages if not _VLLM.match(one)]
    made = Recipe(
        release=over,
        lock=lock,
        packages=(_over(lock, over), *(one for one in spec.packages if not _VLLM.match(one)))
        if cuda
        else spec.packages,
        plugin=shipped("plugin"),
        check=shipped("containers/check.py"),
        cuda=cuda,
    )
    if candidate is None:
        return made
    if candidate.kind is CandidateKind.WHEEL:
        return replace(made, release=release, packages=(str(Path(candidate.path).absolute()), *others))
    return Edited(candidate=candidate, over=made)


def _over(lock: Path, release: str) -> str:
    """The wheel of vLLM that is laid over a lock for GPUs, with its hash where the head of the lock says it."""
    said = re.search(
        rf"^# over: (vllm=={re.escape(release)} --hash=sha256:[0-9a-f]{{64}})$", lock.read_text(), re.MULTILINE
    )
    return said[1] if said else f"vllm=={release}"


def _lock(chart: Matrix, release: str, *, cuda: bool) -> Path:
    if cuda:
        if lock := cuda_lock(chart, release):
            return lock
        raise UsageError(
            f"vllm {release}: no lock for machines with GPUs ships for it: make one, as containers/locks/README.md "
            f"says, or name an image of your own in {CUDA_IMAGE}"
        )
    named = chart.environments[release].lock
    lock = next((path for path in (Path(named), shipped(named)) if path.is_file()), None)
    if lock is None:
        raise UsageError(f"{named}: no such lock, which the matrix names for vllm {release}: correct environments:")
    return lock


def digest(*parts: str | Path) -> str:
    """Sixteen hex digits over texts, files and folders; the same sources give the same digest on every machine."""
    return digest_of(pair for part in parts for pair in _contents(part))


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
