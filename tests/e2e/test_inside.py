"""The tests of what needs torch and vLLM, inside the environment."""

import subprocess
from pathlib import Path

import pytest

from tests.mutants.client import python

PROJECT = Path(__file__).parents[2]
pytestmark = [pytest.mark.env, pytest.mark.timeout(600)]


def test_the_tests_inside_an_environment_hold() -> None:
    words = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--confcutdir=tests/inside", "tests/inside"]
    command = [str(python()), "-m", "pytest", "-c/dev/null", f"--rootdir={PROJECT}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout, "a test that is skipped here is run nowhere"
