"""Model of FlashInfer's XQA decode kernel (sm90, sm120) with draft masks.

Source: FlashInfer 0.7.2, documentation of `xqa_batch_decode_with_kv_cache` and of `flashinfer.xqa.xqa`, and
`csrc/xqa/mha.cu` (`applyMaskFromInput`), `csrc/xqa/xqa_wrapper.cu`. Not modelled: NVFP4, FP8 outputs, the Hopper
kernel for FP8 caches (which rounds queries).
"""

from itertools import pairwise
from typing import Any

import numpy as np
import torch

from attnmatrix_vllm.contracts import FLOATS, integers, offsets, read, require, vectors
from attnmatrix_vllm.paged_attention import Cache, Row, Softmax, attention, causal, pages_of, write

PAGE_SIZES = (16, 32, 64, 128)


def xqa_batch_decode_with_kv_cache(
    query: Any, kv_cache: Any, workspace_buffer: Any, block_tables: Any, seq_lens: Any, max_seq_len: int,
    bmm1_scale: float = 1.0, bmm2_scale: float = 1.0, window_left: int = -1, out: Any = None, *, sinks: Any = None,
    kv_layout: str = "NHD", q_len_per_req: int | None = 1, mask: Any = None, kv_cache_sf: Any = None,
    q_cu_seq_lens: Any = None,
) -> torch.Tensor:  # fmt: skip
    """Decode of rows of `q_len_per_req` tokens, or of up to that many with `q_cu_seq_lens` [batch + 1].

    The last keys of a row are its window, as many as it has query tokens; all keys before them are seen, and in the
    window those whose bit is set. `max_seq_len` is not used: the kernel takes the width of the block table. Of a mask
    with fewer rows than the call the kernel reads what lies behind.
    """
    require(kv_cache_sf is None, "NVFP4 is not modelled")
    require(bool(q_len_per_req) and query.dim() == 3, "q_len_per_req and packed queries are wanted")
    longest = int(q_len_per_req or 1)
    if q_cu_seq_lens is not None:
        require(longest > 1, "q_cu_seq_lens wants q_len_per_req to be the longest window, more than 1")
        require(len(q_cu_seq_lens) == len(seq_lens) + 1, f"{len(q_cu_seq_lens)} offsets for {len(seq_lens)} rows")
        starts = offsets("q_cu_seq_lens", q_cu_seq_lens, len(seq_lens))
    else:
        require(len(query) % longest == 0, f"{len(query)} query tokens, {longest} a row")
        starts = list(range(0, len(query) + 1, longest))
    rows = len(starts) - 1
    vectors("query", query, (starts[-1], *query.shape[1:]), FLOATS)
    size = query.shape[2]
    require(16 <= size <= 256 and size % 16 == 0, f"heads of {size} numbers")
    require(workspace_buffer.is_contiguous(), "the workspace is not contiguous")
    require(block_tables.dtype == torch.int32 and block_tables.is_contiguous(), "block_tables are no int32 table")
    read("block_tables", rows, block_tables.shape[0])
    lengths = integers("seq_lens", seq_lens, rows).tolist()
    cache = Cache.of(kv_cache, kv_layout, query)
    require(cache.page_size in PAGE_SIZES, f"pages of {cache.page_size} tokens")
    if sinks is not None:
        vectors("sinks", sinks, query.shape[1:2], (torch.float32,))
    out = torch.empty_like(query) if out is None else out
    vectors("out", out, query.shape, (query.dtype,))
    windows = _windows(mask, starts, longest, ragged=q_cu_seq_lens is not None)
    found = []
    for row, (first, end) in enumerate(pairwise(starts)):
        count, keys, bits = end - first, lengths[row] if row < len(lengths) else 0, windows[row]
        require(count <= longest, f"row {row} has {count} query tokens, said are at most {longest}")
        require(keys == 0 or count <= keys, f"row {row} has {count} query tokens and {keys} keys")
        visible = causal(count, keys, window_left, -1)
        if keys and bits is not None:
            visible[:, keys - count :] &= bits
        pages = pages_of("block_tables", block_tables, row, keys, cache.page_size)
        unknown = torch.ones(count, dtype=torch.bool) if bits is None and longest > 1 else None
        found.append(Row(slice(first, end), pages, keys, visible, unknown))
    write(out, attention(query, cache, found, Softmax(float(bmm1_scale), 0.0, sinks, 1.0, float(bmm2_scale))))
    return out


def _windows(mask: Any, starts: list[int], longest: int, *, ragged: bool) -> list[torch.Tensor | None]:
    """For each row, which token of its window each query token sees [q, q]; None if the kernel reads past the mask.

    Packed [rows, longest, halves], or [tokens, halves] for ragged rows: words of 32 bits, lowest first, as two uint16.
    """
    if longest == 1:
        require(mask is None, "a mask for single tokens is not modelled")
        return [None] * (len(starts) - 1)
    halves = 2 * -(-longest // 32)
    require(torch.is_tensor(mask) and mask.dtype == torch.uint16, "windows want a mask of uint16")
    require(mask.is_contiguous(), f"the mask has strides {mask.stride()}")
    wanted = (halves,) if ragged else (longest, halves)
    require(tuple(mask.shape[1:]) == wanted, f"the mask is {tuple(mask.shape)}, wanted [..., {wanted}]")
    read("xqa_draft_mask", starts[-1] if ragged else len(starts) - 1, mask.shape[0])
    words = mask.detach().clone().view(torch.uint8).cpu().numpy().reshape(-1, 2 * halves)
    bits = torch.from_numpy(np.unpackbits(words, axis=1, bitorder="little").astype(bool))
    return [bits[a:b, : b - a] if b <= len(bits) else None for a, b in pairwise(starts)]
