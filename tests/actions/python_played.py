"""`python3 -m venv PLACE`, then `PLACE/bin/python -m pip install` of a lock and of the project, without a package index
and in a second.

What pip would make of the project's wheel is laid out by hand, as pyproject.toml says; its dependencies are those of
the Python that runs the tests. Real pip and the real lock are tried in tests/unit/test_runner_lock.py.
"""

import argparse
import compileall
import hashlib
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

WHEELS = Path(__file__).parents[2] / ".runner/tests-wheels"
"""What was laid out before, by what it was made of: as pip keeps the wheels that it built."""
MOST_WHEELS = 30

PYTHON3 = """#!/usr/bin/env bash
if [[ "${{1-}} ${{2-}}" == "-m venv" ]]; then
    place="${{@: -1}}"
    mkdir -p "$place/bin"
    ln -sfn "{here}/venv-python" "$place/bin/python"
    exit 0
fi
exec "{python}" "$@"
"""
VENV_PYTHON = """#!/usr/bin/env bash
if [[ "${{1-}} ${{2-}} ${{3-}}" == "-m pip install" ]]; then
    exec "{python}" "{itself}" "$(dirname "$(dirname "$0")")" "${{@:4}}"
fi
exec "{python}" "$@"
"""
COMMAND = """#!{python}
import sys
sys.path[0:1] = [{library!r}]
from runner.cli import main
sys.exit(main())
"""


def make(folder: Path) -> None:
    """Write a `python3` into a folder that is put first on the PATH."""
    folder.mkdir(parents=True)
    words = {"python": sys.executable, "here": folder, "itself": Path(__file__).resolve()}
    for name, text in (("python3", PYTHON3), ("venv-python", VENV_PYTHON)):
        (folder / name).write_text(text.format(**words))
        (folder / name).chmod(0o755)


def install(project: Path, place: Path) -> None:
    """Lay the wheel of the project out, with the command `runner`."""
    contents = dict(of_the_wheel(project))
    digest = hashlib.sha256()
    for name, source in sorted(contents.items()):
        data = source.read_bytes()
        digest.update(f"{name} {len(data)}\n".encode() + data)
    library = WHEELS / digest.hexdigest()[:24]
    if not library.is_dir():
        _lay_out(contents, library)
    os.utime(library)
    command = place / "bin/runner"
    command.write_text(COMMAND.format(python=sys.executable, library=str(library)))
    command.chmod(0o755)


def of_the_wheel(project: Path) -> Iterator[tuple[str, Path]]:
    """Each file of it, with where the project has it."""
    wheel = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source, target in [*((one, one) for one in wheel["packages"]), *wheel["force-include"].items()]:
        top = project / source
        for path in top.rglob("*") if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(Path(target) / path.relative_to(top)), path


def _lay_out(contents: dict[str, Path], library: Path) -> None:
    """Whole or not at all, and compiled, as pip does it; the oldest are removed."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(dir=WHEELS, prefix="half-"))
    for name, source in contents.items():
        (half / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, half / name)
    compileall.compile_dir(half / "runner", quiet=1, stripdir=str(half), prependdir=str(library))
    try:
        half.rename(library)
    except OSError:  # another worker was faster
        shutil.rmtree(half)
    for old in sorted(WHEELS.iterdir(), key=lambda path: path.stat().st_mtime)[:-MOST_WHEELS]:
        shutil.rmtree(old, ignore_errors=True)


def pip(place: Path, arguments: list[str]) -> None:
    """`pip install`, as far as install.sh calls it; an option that is not known here ends it."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("quiet", "disable-pip-version-check", "require-hashes", "no-index", "no-deps", "no-build-isolation"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--only-binary")
    parser.add_argument("--requirement", type=Path)
    parser.add_argument("project", nargs="?", type=Path)
    asked = parser.parse_args(arguments)
    names = place / "names"
    if asked.requirement:
        if not asked.require_hashes or asked.only_binary != ":all:":
            sys.exit("played: whatever the index gives would be installed")
        entries = re.sub(
            r"\s*\\\n\s*", " ", re.sub(r"^\s*#.*\n?", "", asked.requirement.read_text(), flags=re.MULTILINE)
        )
        for line in entries.splitlines():
            if not re.fullmatch(r"[\w.-]+==[^ ]+( ; [^-]+?)?( --hash=sha256:[0-9a-f]{64})+", line):
                sys.exit(f"played: in --require-hashes mode, all requirements must have hashes: {line}")
        names.write_text(entries)
    if asked.project:
        if not (asked.no_index and asked.no_deps):
            sys.exit("played: the dependencies of the project would come from an index")
        if not asked.no_build_isolation:
            sys.exit("played: hatchling would come from an index")
        if not names.is_file() or "hatchling==" not in names.read_text():
            sys.exit("played: BackendUnavailable: Cannot import 'hatchling.build'")
        install(asked.project, place)


if __name__ == "__main__":
    pip(Path(sys.argv[1]), sys.argv[2:])
