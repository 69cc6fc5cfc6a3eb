"""vLLM's general plugin: puts the models of compiled kernels where vLLM looks these up, once per process.

Nothing is put anywhere where kernels are real (ATTNMATRIX_EVIDENCE=device), nor for a process that judges metadata
alone (ATTNMATRIX_CASE): there nothing computes, and vLLM is to see the same machine as ever.
"""

import importlib
import os
from types import ModuleType
from typing import Any

import torch

from attnmatrix_vllm import bfloat16, capability_of, presented

BACKENDS = "vllm.v1.attention.backends"
INTERPRETED = os.environ.get("ATTNMATRIX_EVIDENCE") == "interpreted"


def load() -> None:
    """vLLM's entry point."""
    if os.environ.get("ATTNMATRIX_EVIDENCE") == "device" or os.environ.get("ATTNMATRIX_CASE", "metadata") == "metadata":
        return
    cache_op()
    if INTERPRETED:
        capability()
        bfloat16.teach()
    flashinfer(importlib.import_module(f"{BACKENDS}.flashinfer"))
    flash_attention(importlib.import_module(f"{BACKENDS}.flash_attn"))
    flex_attention(importlib.import_module(f"{BACKENDS}.flex_attention"))


def cache_op() -> None:
    """The torch op that writes to the cache, where vLLM's build for the CPU lacks it, and the kernel of FP8 queries."""
    from attnmatrix_vllm.cache_kernels import reshape_and_cache_flash, scaled_fp8_quant

    custom_ops: Any = importlib.import_module("vllm._custom_ops")
    custom_ops.scaled_fp8_quant = scaled_fp8_quant
    if hasattr(torch.ops._C_cache_ops, "reshape_and_cache_flash"):
        return
    _LIBRARY.define(
        "reshape_and_cache_flash(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
        "Tensor slot_mapping, str kv_cache_dtype, Tensor k_scale, Tensor v_scale) -> ()"
    )
    _LIBRARY.impl("reshape_and_cache_flash", reshape_and_cache_flash, "CPU")


_LIBRARY = torch.library.Library("_C_cache_ops", "FRAGMENT")
"""Kept: what it defines goes with it."""


def capability() -> None:
    """torch's answer, too, is the presented arch: vLLM's Triton write to the cache asks it for its launch choices."""
    cuda: Any = torch.cuda
    cuda.get_device_capability = lambda _device=None: capability_of(presented())


def wrappers(backend: ModuleType) -> None:
    """FlashInfer's paged wrappers alone: all that a metadata builder needs of it."""
    from attnmatrix_vllm import flashinfer_wrappers as models

    names: Any = backend
    names.BatchPrefillWithPagedKVCacheWrapper = models.BatchPrefillWithPagedKVCacheWrapper
    names.BatchDecodeWithPagedKVCacheWrapper = models.BatchDecodeWithPagedKVCacheWrapper


def flashinfer(backend: ModuleType) -> None:
    """FlashInfer's kernels, the workspace that two of them share, and the copy of pages unless Triton can do it."""
    from attnmatrix_vllm import flashinfer_trtllm, flashinfer_xqa
    from attnmatrix_vllm.cache_kernels import CopyPageIndices

    wrappers(backend)
    names: Any = backend
    names.trtllm_batch_context_with_kv_cache = flashinfer_trtllm.trtllm_batch_context_with_kv_cache
    names.trtllm_batch_decode_with_kv_cache = flashinfer_trtllm.trtllm_batch_decode_with_kv_cache
    names.flashinfer_xqa_batch_decode_with_kv_cache = flashinfer_xqa.xqa_batch_decode_with_kv_cache
    names.trtllm_workspace_buffer = torch.zeros(1 << 20, dtype=torch.uint8)
    if not INTERPRETED:
        names._copy_page_indices_kernel = CopyPageIndices()


def flash_attention(backend: ModuleType) -> None:
    """FlashAttention, and the answer of its interface that versions 2, 3 and 4 have been compiled, as in a CUDA wheel.

    Which of them an arch takes is still vLLM's to say.
    """
    from attnmatrix_vllm import flash_attention_kernel as models

    names: Any = backend
    names.flash_attn_varlen_func = models.flash_attn_varlen_func
    names.get_scheduler_metadata = models.get_scheduler_metadata
    names.reshape_and_cache_flash = torch.ops._C_cache_ops.reshape_and_cache_flash
    interface: Any = importlib.import_module("vllm.vllm_flash_attn.flash_attn_interface")
    interface.FA2_AVAILABLE = interface.FA3_AVAILABLE = interface.FA4_AVAILABLE = True


def flex_attention(backend: ModuleType) -> None:
    """PyTorch's compiled flex_attention."""
    from attnmatrix_vllm import flex_attention_kernel as models

    names: Any = backend
    names.flex_attention_compiled = models.flex_attention
