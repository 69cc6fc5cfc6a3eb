"""Run inside an environment: imports what the cases import, and prints the versions found as one line of JSON."""

import ctypes
import importlib
import json
import os
import platform
import sys
import warnings

os.environ.setdefault("VLLM_PLUGINS", "attnmatrix")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_HAS_FLASHINFER_CUBIN", "1")  # as the cases say it: no CUDA compiler is looked for
warnings.simplefilter("ignore")

NEEDED = [
    "pytest",
    "xdist",
    "hypothesis",
    "numpy",
    "torch",
    "flashinfer",
    "vllm",
    "vllm.engine.arg_utils",
    *(
        f"vllm.v1.attention.backends.{name}"
        for name in ("flashinfer", "flash_attn", "triton_attn", "flex_attention", "cpu_attn")
    ),
]

modules = {name: importlib.import_module(name) for name in NEEDED}
current = importlib.import_module("vllm.platforms").current_platform
if os.environ.get("ATTNMATRIX_EVIDENCE") != "device":
    assert type(current).__module__.startswith("attnmatrix_vllm"), f"vLLM did not take our platform, but {current!r}"
    ctypes.CDLL("libnuma.so.1")  # vLLM's compiled code wants it from the system, and only warns where it is absent

versions = {name: modules[name].__version__ for name in ("vllm", "torch", "flashinfer")}
json.dump({**versions, "python": platform.python_version()}, sys.stdout)
print()
