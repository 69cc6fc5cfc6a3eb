"""Versions of one package laid over a release: which there are, and the matrix in which a cell runs with each."""

import re
import subprocess
import sys
from collections.abc import Iterable
from io import StringIO
from pathlib import Path

from runner.errors import MachineError, UsageError
from runner.nearest import quoted

FOLDER = Path(".runner/bisect")
TIMEOUT_S = 120.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")


def check(package: str, versions: Iterable[str]) -> None:
    """UsageError where one of these is no name of a package, or no version."""
    if not _NAME.fullmatch(package):
        raise UsageError(f"--over {quoted(package)}: is no name of a package: write it as pip would, flashinfer-python")
    for version in versions:
        if not _VERSION.fullmatch(version):
            raise UsageError(f"--over {package}: {quoted(version)} is no version: write it as pip would, 0.6.1.post1")


def available(package: str) -> list[str]:
    """The versions of a package that the package index has for this Python, oldest first; as pip says it."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", package]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise MachineError(f"--over {package}: the package index has not answered in {TIMEOUT_S:.0f} s") from None
    found = re.search(r"^Available versions: (.+)$", asked.stdout, re.MULTILINE)
    if asked.returncode or not found:
        said = asked.stderr.strip().splitlines()
        why = next((line for line in said if line.startswith("ERROR")), said[-1] if said else "it says nothing")
        raise MachineError(f"--over {package}: pip cannot say which versions there are: {why}: name them with --among")
    return [version.strip() for version in found[1].split(",")][::-1]


def matrix_with(matrix: Path, release: str, package: str, version: str) -> Path:
    """A copy of a matrix in which a release's environment has this version of a package, its comments kept."""
    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    document = yaml.load(matrix.read_text())
    packages = document["environments"][release]["packages"]
    same = re.compile(rf"{re.sub('[-_.]+', '[-_.]+', package)}==", re.IGNORECASE)
    packages[:] = [*(one for one in packages if not same.match(one)), f"{package}=={version}"]
    text = StringIO()
    yaml.dump(document, text)
    path = FOLDER / f"{release}-{package}-{version}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.getvalue())
    return path
