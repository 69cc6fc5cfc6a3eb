"""Whether a machine with GPUs is well enough to take a job: asked before it registers itself at GitHub.

A machine that is not well takes none, so that a job which is run again lands on another one. What cannot be asked of a
driver shows in the job itself: the machine then rests, and others come first.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from runner import devices
from runner.environments import daemon
from runner.machine import CUDA_PYTHON

TROUBLE = 3
"""What a run exits with where only the machine, or the harness, was the trouble."""
WORD = "unwell"
"""A file in the folder _work of the Actions runner, which containers/jit-runner.sh looks for."""


def unfit(arch: str) -> list[str]:
    """What is wrong with this machine, for people; nothing where it can run cells of that arch."""
    found = devices.discover()
    if not found.devices:
        return [f"no GPU: {found.reason}"]
    told = []
    for one in found.devices:
        if one.arch != arch:
            told.append(f"GPU {one.index} is {one.arch}, and this machine is there for {arch}: correct ARCH")
        elif why := devices.trouble(one.uuid):
            told.append(f"GPU {one.index} ({one.uuid}): {why}")
    if CUDA_PYTHON not in os.environ and not (docker := daemon.examine()).answers:
        told.append(f"Docker: {docker.trouble}: {docker.advice}")
    return told


def leave_word(code: int, environ: Mapping[str, str]) -> None:
    """After a job on a machine of one's own that ended by the machine's trouble."""
    temp = environ.get("RUNNER_TEMP")
    if code == TROUBLE and temp and environ.get("RUNNER_ENVIRONMENT") == "self-hosted":
        with contextlib.suppress(OSError):  # the disk may be the trouble
            (Path(temp).parent / WORD).touch()
