"""Model of FlashAttention 2, 3 and 4 over a paged cache, behind vLLM's `flash_attn_varlen_func`.

Source: vLLM 0.32.0, documentation of `vllm_flash_attn/flash_attn_interface.py`. Not modelled: ALiBi, dropout, masks by
a function, context parallelism, log-sum-exp; a schedule made ahead of time changes no output, its contents are ignored.
"""

from itertools import pairwise
from typing import Any

import torch

from attnmatrix_vllm.contracts import FLOATS, FP8, integers, offsets, read, require, vectors
from attnmatrix_vllm.paged_attention import Cache, Row, Softmax, attention, pages_of, write
from attnmatrix_vllm.paged_attention import causal as seen_by


def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, max_seqlen_q: int, cu_seqlens_q: Any, max_seqlen_k: int, seqused_k: Any = None, *,
    softmax_scale: float | None = None, causal: bool = False, window_size: Any = None, softcap: float = 0.0,
    alibi_slopes: Any = None, block_table: Any = None, out: Any = None, scheduler_metadata: Any = None,
    q_descale: Any = None, k_descale: Any = None, v_descale: Any = None, num_splits: int = 0, fa_version: int = 2,
    s_aux: Any = None, dynamic_causal: Any = None, mask_mod: Any = None, aux_tensors: Any = None,
) -> torch.Tensor:  # fmt: skip
    """Attention of the rows of `cu_seqlens_q` [rows + 1] over the first `seqused_k` [rows] keys of `block_table`.

    Shapes: q and out [tokens, heads, size], k and v [pages, page size, KV heads, size], descales [rows, KV heads] (of
    FP8 inputs only). The causal mask is aligned to the bottom right; `window_size` is (left, right), -1 for no bound.
    """
    require(
        alibi_slopes is None and dynamic_causal is None and mask_mod is None and aux_tensors is None, "not modelled"
    )
    require(block_table is not None and seqused_k is not None, "only a paged cache is modelled")
    require(fa_version in (2, 3, 4), f"FlashAttention {fa_version}")
    require(fa_version != 2 or (s_aux is None and num_splits <= 1), "FlashAttention 2 takes neither sinks nor splits")
    require(fa_version == 3 or scheduler_metadata is None, "only FlashAttention 3 takes a schedule")
    rows = len(seqused_k)
    starts = offsets("cu_seqlens_q", cu_seqlens_q, rows)
    vectors("q", q, (starts[-1], *q.shape[1:]), (*FLOATS, *FP8) if fa_version > 2 else FLOATS, dense=False)
    lengths = integers("seqused_k", seqused_k, rows).tolist()
    require(block_table.dtype == torch.int32 and block_table.stride(-1) == 1, "block_table is no int32 table")
    read("block_table", rows, block_table.shape[0])
    cache = Cache.of((k, v), "NHD", q, aligned=fa_version > 2)
    require(cache.page_size % 16 == 0, f"pages of {cache.page_size} tokens")
    if s_aux is not None:
        vectors("s_aux", s_aux, q.shape[1:2], (*FLOATS, torch.float32))
    out = torch.empty_like(q) if out is None else out
    vectors("out", out, q.shape, (q.dtype,) if q.dtype in FLOATS else FLOATS, dense=False)
    left, right = (-1, -1) if window_size is None else window_size
    found = []
    for row, (first, end) in enumerate(pairwise(starts)):
        keys = lengths[row]
        require(end - first <= max_seqlen_q, f"row {row} has {end - first} query tokens, said are {max_seqlen_q}")
        require(keys <= max_seqlen_k, f"row {row} has {keys} keys, said are at most {max_seqlen_k}")
        pages = pages_of("block_table", block_table, row, keys, cache.page_size)
        found.append(Row(slice(first, end), pages, keys, seen_by(end - first, keys, left, 0 if causal else right)))
    scale = q.shape[2] ** -0.5 if softmax_scale is None else softmax_scale
    factors = [_factor(of, name, rows, cache) for of, name in ((q_descale, "q"), (k_descale, "k"), (v_descale, "v"))]
    if q.dtype not in FP8:
        factors[0] = 1.0
    if cache.keys.dtype not in FP8:
        factors[1:] = [1.0, 1.0]
    write(out, attention(q, cache, found, Softmax(scale, softcap, s_aux, factors[0] * factors[1], factors[2])))
    return out


def get_scheduler_metadata(*, batch_size: int, cache_seqlens: Any, cu_seqlens_q: Any, **_: Any) -> torch.Tensor:
    """Stands for FlashAttention 3's scheduler: checks the row counts, and gives a schedule that says nothing."""
    integers("cache_seqlens", cache_seqlens, batch_size)
    offsets("cu_seqlens_q", cu_seqlens_q, batch_size)
    return torch.zeros(1, dtype=torch.int32)


def _factor(descale: Any, name: str, rows: int, cache: Cache) -> torch.Tensor | float:
    """Descales of one per row and KV head."""
    if descale is None:
        return 1.0
    wanted = (rows, cache.heads)
    require(tuple(descale.shape) == wanted, f"{name}_descale is {tuple(descale.shape)}, wanted {wanted}")
    require(descale.dtype == torch.float32, f"{name}_descale is {descale.dtype}")
    return descale
