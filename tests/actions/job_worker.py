"""The process of the Actions runner that a job has: it starts the machine's hook, and without it nothing runs.

Source: actions/runner 2.336.0. JobExtension.cs makes the hook the first of a job's steps; ProcessInvoker starts it as a
child of `Runner.Worker`. A hook that fails is a step that failed: StepsRunner.cs goes on to the next one, whose
condition decides. Where the process is gone, Runner.Listener ends the job as failed.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

NAME = "Runner.Worker"
SCRIPT = """#!/bin/bash
bash -e "$1" >"$2/hook.log" 2>&1 </dev/null
echo $? >"$2/hook.code.part"
mv "$2/hook.code.part" "$2/hook.code"
while sleep 600; do :; done
"""
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Asked:
    """What a machine's hook did."""

    admitted: bool
    log: str
    worker_lives: bool
    """Whether the process that runs the steps is still there."""


@contextlib.contextmanager
def asked(hook: Path | None, place: Path, env: Mapping[str, str]) -> Iterator[Asked]:
    """Start the process and let it ask the hook; it ends with the job."""
    if hook is None:
        yield Asked(admitted=True, log="", worker_lives=True)
        return
    script = place / NAME
    script.write_text(SCRIPT)
    script.chmod(0o755)
    worker = subprocess.Popen([script, hook, place], env=dict(env), cwd=place, start_new_session=True)
    try:
        code, until = place / "hook.code", time.monotonic() + PATIENCE_S
        while worker.poll() is None and not code.exists() and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(0.1)  # a hook that ends its worker may do so at its own end
        log = (place / "hook.log").read_text(errors="replace") if (place / "hook.log").exists() else ""
        well = code.exists() and code.read_text().strip() == "0"
        yield Asked(admitted=well, log=log, worker_lives=worker.poll() is None)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
