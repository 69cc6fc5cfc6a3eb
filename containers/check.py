"""Run inside an environment: imports what the cases import, and prints what it found as one line of JSON.

That is versions, and the attention backends that this vLLM has, by the names of the axis `backend`. The argument says
which version of vLLM must be found, or `any`.
"""

import contextlib
import ctypes
import importlib
import importlib.metadata
import json
import os
import platform
import re
import sys
import warnings

os.environ.setdefault("VLLM_PLUGINS", "attnmatrix")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_HAS_FLASHINFER_CUBIN", "1")  # as the cases say it: no CUDA compiler is looked for
warnings.simplefilter("ignore")

EXPECTED = sys.argv[1]
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


def check_vllm() -> None:
    """That it is the one expected, alone, and takes our platform."""
    vllm = importlib.import_module("vllm")
    found = re.sub(r"(\.post\d+)?(\+.*)?$", "", vllm.__version__)  # 0.12.0.post2 is a build of 0.12.0
    assert EXPECTED in ("any", found), f"this must be vLLM {EXPECTED}, but {vllm.__version__} imports ({vllm.__file__})"
    named = {
        distribution.metadata["Name"]: distribution.version
        for distribution in reversed(list(importlib.metadata.distributions()))  # the first on the path counts
        if re.fullmatch(r"vllm([-_]cpu)?", distribution.metadata["Name"])
    }
    assert {re.sub(r"\+.*$", "", version) for version in named.values()} == {re.sub(r"\+.*$", "", vllm.__version__)}, (
        f"vLLM {vllm.__version__} imports, but the packages installed are {named}"
    )
    current = importlib.import_module("vllm.platforms").current_platform
    if os.environ.get("ATTNMATRIX_EVIDENCE") != "device":
        assert type(current).__module__.startswith("attnmatrix_vllm"), (
            f"vLLM did not take our platform, but {current!r}"
        )
        ctypes.CDLL("libnuma.so.1")  # vLLM's compiled code wants it from the system, and only warns where it is absent


def backends() -> list[str]:
    """The names under which vLLM registers attention backends, as the axis writes them; none where it is not known how.

    A patch may have moved the registry: then nothing is said of it here, and each cell finds out by itself.
    """
    for module, registry in (
        ("vllm.v1.attention.backends.registry", "AttentionBackendEnum"),
        ("vllm.attention.backends.registry", "AttentionBackendEnum"),  # until 0.13
        ("vllm.attention.backends.registry", "_Backend"),  # until 0.11
        ("vllm.platforms.interface", "_Backend"),  # until 0.10
    ):
        with contextlib.suppress(ImportError, AttributeError):
            found = getattr(importlib.import_module(module), registry)
            return sorted({name.removesuffix("_VLLM_V1").lower() for name in found.__members__})
    return []


modules = {name: importlib.import_module(name) for name in NEEDED}
check_vllm()

versions = {name: modules[name].__version__ for name in ("vllm", "torch", "flashinfer")}
json.dump({**versions, "python": platform.python_version(), "backends": backends()}, sys.stdout)
print()
