"""`python3 -m venv PLACE` and `PLACE/bin/python -m pip install PROJECT`, without a package index and in a second.

What pip would make of the project's wheel is laid out by hand, as pyproject.toml says; its dependencies are those of
the Python that runs the tests.
"""

import shutil
import sys
import tomllib
from pathlib import Path

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
    wheel = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    library = place / "lib"
    for package in wheel["packages"]:
        shutil.copytree(project / package, library / package)
    for source, target in wheel["force-include"].items():
        (library / target).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (project / source).is_dir() else shutil.copyfile
        copy(project / source, library / target)
    command = place / "bin/runner"
    command.write_text(COMMAND.format(python=sys.executable, library=str(library)))
    command.chmod(0o755)


if __name__ == "__main__":
    install(Path(sys.argv[1]), Path(sys.argv[2]))
