"""A pytest plugin: Triton's kernels run in its interpreter on CPU tensors, and vLLM believes that Triton is there.

Triton reads its variable when a function is defined, its own library included: so it comes before Triton's import. vLLM
turns Triton off where it finds no driver (0.32.0: `triton_utils/importing.py`): so one is there before vLLM's import.
"""

import importlib
import os
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "1"
_driver = SimpleNamespace(is_active=lambda: True)
importlib.import_module("triton.backends").backends["cpu"] = SimpleNamespace(compiler=None, driver=_driver)
