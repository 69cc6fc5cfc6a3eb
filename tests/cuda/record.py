"""What the CUDA image is built from, and the record of the build that was made of it: containers/cuda.built.json."""

import json
import re
from pathlib import Path
from typing import Any

from runner.environments.recipe import digest, shipped

RELEASE = "0.32.0"
PLACE = Path("containers/cuda.built.json")
PARTS = ("cuda.Dockerfile", "overlay.Dockerfile", "make-base.sh", "images.lock", f"locks/cuda-{RELEASE}.txt")
HOW = 'make test PYTEST_ARGS="-m slow"'


def recipe() -> str:
    """The digest of all that decides what the image holds but for this project's own Python in it.

    Comments decide nothing.
    """
    return digest(*(re.sub(r"(?m)^#.*\n", "", shipped(f"containers/{part}").read_text()) for part in PARTS))


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shipped(str(PLACE)).read_text())
    return found
