"""What stands behind the attention case: the vendor's references, and vLLM's real Triton kernel, interpreted."""

import os
import subprocess

import pytest

from tests.mutants.client import PROJECT, python

pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("file", "plugins"), [("flashinfer_references", ()), ("triton_attention", ("tests.inside.triton_on_a_cpu",))]
)
def test_inside_the_environment(file: str, plugins: tuple[str, ...]) -> None:
    """Each in a process of its own: a plugin changes what Triton is before vLLM is imported."""
    options = ["-c", os.devnull, "--rootdir", str(PROJECT), "--noconftest", "-q", "-p", "no:cacheprovider"]
    options += [word for plugin in plugins for word in ("-p", plugin)]
    command = [str(python()), "-m", "pytest", *options, str(PROJECT / "tests" / "inside" / f"{file}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert done.returncode == 0, done.stdout + done.stderr
