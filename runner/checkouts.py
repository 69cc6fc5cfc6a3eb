"""A checkout of vLLM as a Python package: which files it is, what it takes from a wheel, which release it is near."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version
from pathspec import GitIgnoreSpec

from runner.patches import PACKAGE

IGNORE = ".gitignore"
VERSION = f"{PACKAGE}/_version.py"
"""Which version it is: the release's own, for by it the cases know vLLM's API."""
_BUILT = (".so", ".pyd", ".a", ".o", ".pyc")
_GENERATED = (
    f"/{PACKAGE}/vllm_flash_attn/",
    f"/{PACKAGE}/third_party/triton_kernels/",
    f"/{PACKAGE}/third_party/flashmla/flash_mla_interface.py",
    f"/{PACKAGE}/third_party/deep_gemm/",
    f"/{PACKAGE}/third_party/fmha_sm100/",
    f"/{PACKAGE}/third_party/tml_fa4/",
    f"/{PACKAGE}/grpc/*_pb2*",
    f"/{PACKAGE}/vllm-rs",
)
"""What a build generates, or copies from other repositories: for a checkout that has no .gitignore to say so."""
_GIT_S = 10.0


class BadCheckout(Exception):
    """The folder is no checkout that can be used; says which file is in the way."""


@dataclass(frozen=True, slots=True)
class Near:
    """A version that the checkout says of itself, and what said it."""

    version: str
    source: str


def files(checkout: Path) -> dict[str, Path]:
    """The files of the package by their paths from the checkout, but for compiled ones and the version; and .gitignore.

    BadCheckout for a link that leads out of the checkout: what is behind it is no part of it.
    """
    top = checkout.resolve()
    ignore = checkout / IGNORE
    found = {IGNORE: ignore} if ignore.is_file() and not ignore.is_symlink() else {}
    for path in sorted(_walk(checkout / PACKAGE, top)):
        name = path.relative_to(checkout).as_posix()
        if path.suffix not in _BUILT and name != VERSION and path.is_file():
            found[name] = path
    return found


def from_wheel(names: Iterable[str], ignored: str) -> set[str]:
    """Those of a wheel's files that the package takes though the checkout lacks them: compiled and generated ones.

    Generated is what git does not keep, as `ignored`, the text of the checkout's .gitignore, says.
    """
    generated = GitIgnoreSpec.from_lines(ignored.splitlines() if ignored else _GENERATED)
    return {name for name in names if name == VERSION or name.endswith(_BUILT) or generated.match_file(name)}


def near(checkout: Path) -> Near | None:
    """The version that the checkout says: by its nearest tag, by what a build left, or by its sdist's metadata."""
    if tag := _tag(checkout):
        return Near(tag, "git describe")
    for name, pattern in ((VERSION, r"^__version__ = .*?'([^']+)'"), ("PKG-INFO", r"^Version: (\S+)")):
        path = checkout / name
        if (
            path.is_file()
            and not path.is_symlink()
            and (found := re.search(pattern, path.read_text(errors="replace"), re.MULTILINE))
        ):
            return Near(found[1], name)
    return None


def nearest(version: str, releases: Sequence[str]) -> str | None:
    """Of these releases: that version's, else the next one below of the same minor, else above it, else the last
    before it, else the first. None where it is no version.

    A pre-release such as 0.32.0rc1 or 0.32.0.dev5 counts as what it leads to.
    """
    try:
        wanted = Version(Version(version).base_version)
    except InvalidVersion:
        return None
    known = sorted((Version(one), one) for one in releases)
    same = [pair for pair in known if pair[0].release[:2] == wanted.release[:2]]
    below = [pair for pair in same or known if pair[0] <= wanted]
    above = same or known
    return below[-1][1] if below else above[0][1] if above else None


def operations(sources: Iterable[bytes]) -> set[str]:
    """The operations of compiled code that Python sources call, such as `_C.rms_norm`."""
    called = re.compile(rb"torch\.ops\.(_\w+\.\w+)")
    return {found.decode() for source in sources for found in called.findall(source)}


def _walk(folder: Path, top: Path) -> Iterator[Path]:
    """Every file below a folder; BadCheckout for a link that is no file of the checkout."""
    _require_within(folder, top)
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in (*folders, *names):
            path = Path(place, name)
            if path.is_symlink():
                _require_within(path, top)
                if path.is_dir():
                    raise BadCheckout(f"{path} is a link to a folder: a package has its files itself, copy them there")
        yield from (Path(place, name) for name in names)


def _require_within(path: Path, top: Path) -> None:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise BadCheckout(f"{path} is a link that leads nowhere: take it away") from None
    if not target.is_relative_to(top):
        raise BadCheckout(f"{path} is a link to {target}, out of the checkout: put the file itself there")


def _tag(checkout: Path) -> str:
    """The version of the newest tag behind what is checked out; empty where git has none, or is not there."""
    git = shutil.which("git")
    if git is None or not (checkout / ".git").exists():
        return ""
    command = [git, "-C", str(checkout), "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, check=False, env=plain)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().removeprefix("v") if done.returncode == 0 else ""
