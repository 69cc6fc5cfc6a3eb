"""Why vLLM could not inspect a model: it does that in a subprocess, and keeps what went wrong there to its log.

Source (0.10.0 to 0.33.0): `_run_in_subprocess`, `_try_inspect_model_cls` in `vllm/model_executor/models/registry.py`.
"""

import logging
import re
import signal
import subprocess
import sys
from typing import Any

from cases.causes import of_product
from cases.verdicts import MachineTrouble, Wrong

LOGGER = "vllm.model_executor.models.registry"
FAILED = "failed to be inspected"
"""In vLLM's ValueError."""
ENDED = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU, signal.SIGXFSZ, signal.SIGBUS}
"""Signals by which a machine ends a process."""
OF_MACHINE = ("MemoryError", "OSError", "TimeoutError", "TimeoutExpired", "BlockingIOError", "PermissionError")
_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d+), in (\S+)$', re.MULTILINE)
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$", re.MULTILINE)


class Inspections(logging.Filter):
    """Remembers what the last failed inspection raised, which vLLM keeps to its log.

    A filter that lets everything pass: vLLM configures its loggers again, and takes handlers off then.
    """

    raised: BaseException | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is not None:
            self.raised = record.exc_info[1]
        return True


LAST = Inspections()


def watch() -> None:
    """Listen to vLLM's registry from now on."""
    logging.getLogger(LOGGER).addFilter(LAST)


def forget() -> None:
    """Let vLLM inspect a model again that it could not inspect before: it keeps that in a cache."""
    module = sys.modules.get(LOGGER)
    if hasattr(inspect := getattr(module, "_try_inspect_model_cls", None), "cache_clear"):
        inspect.cache_clear()
    LAST.raised = None


def reason_of(error: Exception) -> Exception | None:
    """What to raise for an error of vLLM's that says no more than that an inspection failed; None for another error.

    MachineTrouble where the subprocess was ended from outside or lacked memory, Wrong with its own words else.
    """
    if FAILED not in str(error):
        return None
    raised = LAST.raised
    if raised is None:
        return Wrong("vLLM could not inspect the model, and its log does not say why")
    before = raised.__cause__ or raised
    text = str(raised)
    if isinstance(before, subprocess.CalledProcessError) and before.returncode < 0:
        by = signal.Signals(-before.returncode)
        if by in ENDED:
            return MachineTrouble(f"the process in which vLLM inspects the model was ended by {by.name}")
        return Wrong(f"the process in which vLLM inspects the model died by {by.name}")
    kind, words, cause = last_error(text)
    if isinstance(raised, OSError | MemoryError | subprocess.TimeoutExpired) or kind in OF_MACHINE:
        return MachineTrouble(
            f"the process in which vLLM inspects the model: {kind or type(raised).__name__}: {words or text}"
        )
    if not kind:
        return Wrong(f"vLLM could not inspect the model: {text.strip()[-600:]}")
    where = f" ({cause['file']}:{cause['line']} in {cause['function']})" if cause else ""
    return Wrong(f"vLLM cannot import its own model: {kind}: {words}{where}", cause)


def last_error(text: str) -> tuple[str, str, dict[str, Any] | None]:
    """Of the last traceback in a text: the type, the words, and vLLM's last frame as the `cause` of docs/results.md."""
    last = text.rpartition("Traceback (most recent call last):")[2] if "Traceback (most" in text else ""
    frames = list(_FRAME.finditer(last))
    said = _RAISED.search(last, frames[-1].end()) if frames else None
    if said is None:
        return "", "", None
    kind, words = said[1].rpartition(".")[2], (said[2] or "").strip()
    of_vllm = [(of_product(f[1]), int(f[2]), f[3]) for f in frames if of_product(f[1])]
    if not of_vllm:
        return kind, words, None
    file, line, function = of_vllm[-1]
    return kind, words, {"exception": kind, "words": words, "file": file, "line": line, "function": function}
