"""GitHub's own packages for expressions and workflows, run by Node: what our harness is compared with."""

import json
import math
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("node")
LEAST_NODE = 20
"""The major version that the packages ask for."""


def why_not() -> str:
    """Why they cannot run here; empty where they can."""
    node = shutil.which("node")
    if not node or not shutil.which("npm"):
        return "node and npm are not installed"
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if int(version.lstrip("v").partition(".")[0]) < LEAST_NODE:
        return f"node is {version}, and version {LEAST_NODE} is needed"
    return ""


def installed(place: Path) -> Path:
    """A folder with the packages, by the lock and its digests."""
    for path in FOLDER.iterdir():
        shutil.copyfile(path, place / path.name)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=place, check=True, timeout=300)
    return place


def run(place: Path, script: str, given: Any) -> Any:
    """What a script of tests/actions/node writes as JSON for this JSON."""
    done = subprocess.run(
        ["node", script], cwd=place, input=json.dumps(given), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def plain(value: Any) -> Any:
    """A value of ours as `evaluate.mjs` writes one."""
    match value:
        case None:
            return ["null"]
        case bool():
            return ["boolean", value]
        case int() | float():
            return ["number", float(value) if not math.isnan(value) else "NaN"]
        case str():
            return ["text", value]
        case list():
            return ["array", [plain(one) for one in value]]
        case dict():
            return ["object", [[key, plain(one)] for key, one in value.items()]]
    raise TypeError(type(value))


def as_ours(answer: Any) -> Any:
    """An answer of `evaluate.mjs`, numbers as Python has them, and no words of an error."""
    match answer:
        case ["number", text]:
            return ["number", "NaN" if text == "NaN" else float(text.replace("Infinity", "inf"))]
        case ["array", items]:
            return ["array", [as_ours(one) for one in items]]
        case ["object", pairs]:
            return ["object", [[key, as_ours(one)] for key, one in pairs]]
        case ["error", _]:
            return ["error"]
    return answer


REQUIRED = bool(os.environ.get("ATTNMATRIX_REQUIRE_NODE"))
"""Where it is set, Node is there: a test that finds none fails and is not skipped."""
