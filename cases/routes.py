"""Which kernels are to serve a cell of FlashInfer's backend: a table from the vendor's documents, not from vLLM's code.

- trtllm-gen's paged context and decode kernels exist for sm100 and sm103 only, and read pages with heads outermost
  (FlashInfer's `trtllm_batch_context_with_kv_cache` and `trtllm_batch_decode_with_kv_cache`: layout HND);
- XQA decodes on sm90 and sm12x, for head sizes that are multiples of 16 from 16 to 256, and several query tokens of a
  request with a draft mask (FlashInfer's `xqa` and `xqa_batch_decode_with_kv_cache`). An NVFP4 cache it reads on sm12x
  only (same place: "XQA NVFP4 KV is only supported on SM12x GPUs");
- everything else is the library's own: the paged wrappers of `flashinfer.prefill` and `flashinfer.decode`.

vLLM prefers the first two wherever they exist: https://github.com/vllm-project/vllm/pull/49718 for sm12x; on sm90 it
gives XQA the masks since 0.30.0, which is where the table begins. For older releases kernels are recorded, not judged.
"""

from dataclasses import dataclass

from cases.cell import Cell

SINCE = (0, 30, 0)
"""The first release of vLLM that the table is about."""

TRTLLM_GEN = frozenset({"sm100", "sm103"})
XQA = frozenset({"sm90", "sm120", "sm121"})
XQA_NVFP4 = frozenset({"sm120", "sm121"})


@dataclass(frozen=True)
class Kernels:
    """Names as in `resolved`; `draft_mask` is whether verify windows are decoded with one."""

    prefill: str
    decode: str
    draft_mask: bool


def expected(cell: Cell) -> Kernels:
    """The kernels for a cell with FlashInfer's backend."""
    own = "flashinfer-native"
    if cell.arch in TRTLLM_GEN:
        return Kernels("trtllm-gen", "trtllm-gen", draft_mask=False)
    size, nvfp4 = cell.load.head_size, cell.kv_dtype.startswith("nvfp4")
    xqa = cell.arch in (XQA_NVFP4 if nvfp4 else XQA) and size % 16 == 0 and 16 <= size <= 256
    return Kernels(own, "xqa" if xqa else own, draft_mask=xqa and cell.spec_k > 0)


def needs_its_device(cell: Cell) -> str:
    """Why a CPU that presents the cell's arch could only give a wrong answer about it; empty where it can give one.

    FlashAttention's versions 3 and 4 read an FP8 cache on sm90 and the sm100 family. They are compiled CUDA code, and
    vLLM asks whether they are there: on a CPU it would refuse what it takes on the device.
    """
    fa = cell.backend == "flash_attn" and cell.kv_dtype.startswith("fp8") and cell.arch in {"sm90", *TRTLLM_GEN}
    if fa and not cell.on_device:
        return f"whether FlashAttention reads an FP8 cache on {cell.arch} is up to compiled code that only a device has"
    return ""
