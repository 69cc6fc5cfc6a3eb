"""The environment in which stories run cells, built before one needs it, as this machine builds it for itself.

A story may name an index that is not there. Its own jobs would look for each package there, again and again, for
half an hour.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[2]
RELEASE = "0.32.0"


@cache
def build() -> None:
    """Nothing where it is there; a second one waits for the first."""
    command = [sys.executable, "-m", "runner", "env", "build", "--engine", "local", RELEASE]
    subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
