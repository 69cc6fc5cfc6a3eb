"""A `python3` whose `-m venv` is done in a moment: the pip of a new venv takes seconds to unpack."""

import sys
from pathlib import Path

import pip

_TEXT = """#!/bin/bash
if [[ "$1 $2" == "-m venv" ]]; then
    "{python}" -m venv --without-pip "${{@:3}}" && ln -s "{pip}" "${{@: -1}}"/lib/python*/site-packages/
else
    exec "{python}" "$@"
fi
"""


def python3(folder: Path) -> Path:
    """Makes it in a folder. What it puts into a venv is the pip that is here, which is real too."""
    made = folder / "python3"
    made.write_text(_TEXT.format(python=sys.executable, pip=Path(pip.__file__).parent))
    made.chmod(0o755)
    return made
