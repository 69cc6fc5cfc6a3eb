"""`python3 -m venv PLACE` and `PLACE/bin/python -m pip install PROJECT`, without a package index and in a second.

What pip would make of the project's wheel is laid out by hand, as pyproject.toml says; its dependencies are those of
the Python that runs the tests.
"""

import compileall
import hashlib
import os
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
    exec "{python}" "{itself}" "${{@: -1}}" "$(dirname "$(dirname "$0")")"
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


if __name__ == "__main__":
    install(Path(sys.argv[1]), Path(sys.argv[2]))
