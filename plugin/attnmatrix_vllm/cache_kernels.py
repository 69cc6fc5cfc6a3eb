"""Models of the kernels around attention: the cache write, FP8 queries, and the copy of pages to FlashInfer's list.

Source: vLLM 0.32.0, `_custom_ops.reshape_and_cache_flash` and `scaled_fp8_quant`, and the Triton kernel
`_copy_page_indices_kernel` of `v1/attention/backends/flashinfer.py`.
"""

from collections.abc import Callable
from typing import Any

import torch

from attnmatrix_vllm.contracts import FLOATS, ContractBroken, OutOfRange, require, vectors

FP8 = {"fp8": torch.float8_e4m3fn, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
"""vLLM's names of FP8 KV caches; their tensors are bytes or of the dtype itself."""
AS_GIVEN = ("auto", "float16", "bfloat16", "float32", "half", "float")


def reshape_and_cache_flash(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor,
    slot_mapping: torch.Tensor, kv_cache_dtype: str, k_scale: torch.Tensor, v_scale: torch.Tensor,
) -> None:  # fmt: skip
    """Write each token's key and value to its slot: page slot // page size, place slot % page size; none if negative.

    Shapes: key and value [tokens or more, KV heads, size], caches [pages, page size, KV heads, size] of any strides,
    slot_mapping [tokens] int64, scales one number. FP8 caches get the value over its scale, saturated.
    """
    require(slot_mapping.dtype == torch.int64 and slot_mapping.dim() == 1, "slot_mapping is no vector of int64")
    require(len(key) >= len(slot_mapping), f"{len(key)} keys for {len(slot_mapping)} slots")
    require(kv_cache_dtype in (*AS_GIVEN, *FP8), f"a cache of {kv_cache_dtype} is not modelled")
    size = key_cache.shape[1]
    highest = int(slot_mapping.max()) if len(slot_mapping) else -1
    if highest >= key_cache.shape[0] * size:
        raise OutOfRange("kv_cache", highest // size + 1, key_cache.shape[0])
    used = slot_mapping >= 0
    page, place = slot_mapping[used] // size, slot_mapping[used] % size
    for given, cache, scale in ((key, key_cache, k_scale), (value, value_cache, v_scale)):
        vectors("key or value", given, (len(key), *cache.shape[2:]), FLOATS, dense=False)
        require(cache.shape == key_cache.shape and cache.stride(3) == 1, f"a cache of {cache.shape}, {cache.stride()}")
        written = given[: len(slot_mapping)][used]
        if dtype := FP8.get(kv_cache_dtype):
            require(cache.dtype in (torch.uint8, dtype), f"{kv_cache_dtype} in a cache of {cache.dtype}")
            require(scale.numel() == 1, "a scale for each head is not modelled")
            most = torch.finfo(dtype).max
            written = (written.float() / scale.float()).clamp(-most, most).to(dtype).view(torch.uint8)
            cache.view(torch.uint8)[page, place] = written
        else:
            require(cache.dtype == given.dtype, f"{given.dtype} into a cache of {cache.dtype}")
            cache[page, place] = written


def scaled_fp8_quant(
    input: torch.Tensor,  # noqa: A002 - vLLM's name, which callers use
    scale: torch.Tensor | None = None,
    **others: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 queries: the number over the tensor's one scale, saturated, in e4m3; vLLM's CPU build has no such kernel."""
    require(scale is not None and scale.numel() == 1 and not others, "only one scale that is given is modelled")
    vectors("queries to quantise", input, input.shape, FLOATS, dense=False)
    most = torch.finfo(torch.float8_e4m3fn).max
    return (input.float() / scale.float()).clamp(-most, most).to(torch.float8_e4m3fn), scale


class CopyPageIndices:
    """Models vLLM's Triton kernel that gathers block-table rows into one list of page indices.

    Contract (its source): program r copies block_table[r, 0 : cu[r + 1] - cu[r]] to page_indices[cu[r] : cu[r + 1]],
    and nothing in it knows how long `page_indices` is.
    """

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        (rows,) = grid

        def copy(page_indices: Any, block_table: Any, stride: int, cu_num_blocks: Any, **options: Any) -> None:
            if cu_num_blocks.numel() < rows + 1:
                raise OutOfRange("cu_num_blocks", rows + 1, cu_num_blocks.numel())
            starts, ends = cu_num_blocks[:rows].long(), cu_num_blocks[1 : rows + 1].long()
            counts, end = (ends - starts).clamp(min=0), int(ends.max()) if rows else 0
            if rows and int(counts.max()) > block_table.shape[1]:
                raise ContractBroken(f"{int(counts.max())} pages are copied of a row of {block_table.shape[1]}")
            if self.copied_otherwise(grid, end, page_indices, block_table, stride, cu_num_blocks, **options):
                return
            if end > page_indices.numel():
                raise OutOfRange("paged_kv_indices", end, page_indices.numel())
            row = torch.repeat_interleave(counts)
            nth = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row]
            page_indices[starts[row] + nth] = block_table[row, nth]

        return copy

    def copied_otherwise(self, grid: tuple[int], end: int, *arguments: Any, **options: Any) -> bool:
        """Whether another copied the pages of this call, up to entry `end`: none does here."""
        return False
