"""Makes a process see the arch of its cell: the real device, or one that is presented on the CPU.

Importing this module sets what vLLM and Triton read from the environment, so it comes before their first import.
"""

import importlib
import os
from types import SimpleNamespace

import attnmatrix_vllm
from cases.cell import Cell
from cases.verdicts import Substituted

os.environ.update(
    VLLM_PLUGINS="attnmatrix",
    # Llama-4's chunked layers with the hybrid manager: the axis decides, not the release's default.
    VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE="1",
    VLLM_LOGGING_LEVEL=os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
)
if os.environ.get("ATTNMATRIX_EVIDENCE") != "device":
    # vLLM asks whether FlashInfer's kernels can be had (from a server, as a package, or by nvcc). On a presented arch:
    # yes. On a device that is the environment's to say.
    os.environ["VLLM_HAS_FLASHINFER_CUBIN"] = "1"
CASE = os.environ.get("ATTNMATRIX_CASE", "metadata")
"""What the cells of this process judge: `metadata`, `forward` or `engine`."""

if os.environ.get("ATTNMATRIX_EVIDENCE") == "interpreted":
    # Triton reads its variable when a function is defined, its own library included, and vLLM turns Triton off where it
    # finds no driver (0.32.0: `triton_utils/importing.py`): one is there before either is imported.
    os.environ["TRITON_INTERPRET"] = "1"
    _driver = SimpleNamespace(is_active=lambda: True)
    importlib.import_module("triton.backends").backends["cpu"] = SimpleNamespace(compiler=None, driver=_driver)


def see(cell: Cell) -> None:
    """Let vLLM see the cell's arch from now on; Substituted if the real device is another one."""
    if not cell.on_device:
        attnmatrix_vllm.present(cell.arch)
        return
    import torch

    if not torch.cuda.is_available():
        raise Substituted(f"asked for a device of arch {cell.arch}, but torch sees no CUDA device here")
    major, minor = torch.cuda.get_device_capability()
    if (major, minor) != attnmatrix_vllm.capability_of(cell.arch):
        raise Substituted(f"asked for a device of arch {cell.arch}, but this one is sm{major}{minor}")
