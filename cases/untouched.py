"""Keeps imports from touching the GPU of their process: cells are forked from it, and CUDA does not survive a fork.

Some modules ask torch for the device when they are imported (FlashInfer 0.7 does, in `compilation_context.py` and
`gdn_kernels/`). That starts CUDA, and then each forked cell ends with "Cannot re-initialize CUDA in forked subprocess".
So another process asks the device, and its answers are given here while modules are imported.
"""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest import mock

ASK = """
import json, torch
plain = (bool, int, float, str)
found = [torch.cuda.get_device_properties(one) for one in range(torch.cuda.device_count())]
print(json.dumps([{k: getattr(one, k) for k in dir(one) if isinstance(getattr(one, k), plain)} for one in found]))
"""
ASK_S = 120.0


def devices() -> list[SimpleNamespace]:
    """What torch says of each CUDA device, asked in another process; none where it does not answer."""
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", ASK], capture_output=True, timeout=ASK_S, check=True, text=True
        )
        return [SimpleNamespace(**one) for one in json.loads(done.stdout.splitlines()[-1])]
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
        return []


def begin() -> ExitStack:
    """Give these answers until what is returned is closed; nothing is changed where no device is to be used."""
    stack = ExitStack()
    if os.environ.get("ATTNMATRIX_EVIDENCE") != "device" or not (found := devices()):
        return stack
    import torch

    def of(device: Any = None) -> SimpleNamespace:
        index = getattr(device, "index", device)
        return found[index if isinstance(index, int) else 0]

    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: len(found),
        "current_device": lambda: 0,
        "get_device_properties": of,
        "get_device_capability": lambda device=None: (of(device).major, of(device).minor),
        "get_device_name": lambda device=None: of(device).name,
    }
    for name, answer in answers.items():
        stack.enter_context(mock.patch.object(torch.cuda, name, answer))
    return stack


def trouble() -> str:
    """Why no cell could be forked from this process; empty where they can."""
    import torch

    if os.environ.get("ATTNMATRIX_EVIDENCE") == "device" and torch.cuda.is_initialized():
        return (
            "an import has started CUDA in the process that cells are forked from, so none could use its GPU: "
            "cases/untouched.py answers what modules ask, and lacks an answer"
        )
    return ""
