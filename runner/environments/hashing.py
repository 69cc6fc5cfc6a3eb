"""The hash of each package's wheel, as pip finds it for the Python of a lock; and a lock with them written into it."""

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from runner.environments import held, steps
from runner.environments.progress import Say
from runner.environments.recipe import Lock
from runner.environments.venv import interpreter
from runner.errors import EnvironmentBroken

LOG = Path(".runner/hash.log")
_REPORT = ("-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:", "--no-input")
_ENTRY = re.compile(
    r"^(?P<package>[A-Za-z0-9._-]+==[^\s;\\]+)(?P<marker>[ \t]*;[^\\\n]*?)?(?:(?:[ \t]*\\\n)?[ \t]*--hash=\S+)*[ \t]*$",
    re.MULTILINE,
)


def hashed(packages: Sequence[str], lock: Lock, *, say: Say) -> list[str]:
    """`name==version --hash=sha256:...` for each; EnvironmentBroken where pip does not find one.

    The wheel is the one that pip takes on this machine for the Python of the lock.
    """
    found: dict[tuple[str, str], str] = {}
    LOG.parent.mkdir(parents=True, exist_ok=True)
    LOG.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="attnmatrix-hash.") as folder:
        python, report = Path(folder, "pip/bin/python"), Path(folder, "report.json")
        making = [str(interpreter(lock)), "-m", "venv", str(python.parents[1])]
        steps.run(making, log=LOG, what="hashes: making a place for pip", say=say)
        for some in _apart(packages):
            asked = [str(python), *_REPORT, "--report", str(report), *some]
            what = f"hashes: asking for {some[0]}" + (f" and {len(some) - 1} others" if some[1:] else "")
            steps.run(asked, log=LOG, what=what, say=say, progress=steps.pip_progress(len(some)))
            found |= _read(report.read_text())
    return [f"{one} --hash=sha256:{found[_key(one)]}" for one in packages]


def written(lock: Lock, *, say: Say) -> str:
    """The text of the lock with a hash for each package, and all else as it was."""
    text = lock.path.read_text()
    packages = held.pinned(text)
    with_hash = dict(zip(packages, hashed(packages, lock, say=say), strict=True))

    def entry(match: re.Match[str]) -> str:
        package = match["package"]
        return f"{package}{match['marker'] or ''}{with_hash[package].removeprefix(package)}"

    return _ENTRY.sub(entry, text)


def _apart(packages: Sequence[str]) -> list[list[str]]:
    """No package twice in one: pip takes only one version of it."""
    found: list[list[str]] = []
    for one in packages:
        name = _key(one)[0]
        rest = [some for some in found if name not in {_key(other)[0] for other in some}]
        if not rest:
            found.append([])
        (rest[0] if rest else found[-1]).append(one)
    return found


def _read(report: str) -> dict[tuple[str, str], str]:
    """By name and version; https://pip.pypa.io/en/stable/reference/installation-report/."""
    found: dict[tuple[str, str], str] = {}
    for one in json.loads(report)["install"]:
        about, info = one["metadata"], one["download_info"].get("archive_info", {})
        sha = info.get("hashes", {}).get("sha256") or str(info.get("hash", "")).removeprefix("sha256=")
        if not re.fullmatch(r"[0-9a-f]{64}", sha):
            raise EnvironmentBroken(f"hashes: pip says no SHA-256 of {about['name']} {about['version']}")
        found[canonicalize_name(about["name"]), str(about["version"])] = sha
    return found


def _key(package: str) -> tuple[str, str]:
    name, _, version = package.partition("==")
    return canonicalize_name(name), version
