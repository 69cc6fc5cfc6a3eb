"""Models of FlashInfer's trtllm-gen attention (sm100, sm103): prefill ("context") and decode over a block table.

Source: FlashInfer 0.7.2, documentation of `trtllm_batch_context_with_kv_cache` and `trtllm_batch_decode_with_kv_cache`,
and `csrc/trtllm_fmha_kernel_launcher.cu`. Both take causal attention, bottom-right aligned, over the first `seq_lens`
keys of each row. Not modelled: NVFP4, log-sum-exp, sparse and context-parallel modes, skip-softmax, other backends.
"""

from itertools import pairwise
from typing import Any

import torch

from attnmatrix_vllm.contracts import FLOATS, FP8, integers, offsets, read, require, vectors
from attnmatrix_vllm.paged_attention import Cache, Row, Softmax, attention, causal, pages_of, write


def trtllm_batch_context_with_kv_cache(
    query: Any, kv_cache: Any, workspace_buffer: Any, block_tables: Any, seq_lens: Any, max_q_len: int, max_kv_len: int,
    bmm1_scale: float, bmm2_scale: float, batch_size: int, cum_seq_lens_q: Any, cum_seq_lens_kv: Any,
    window_left: int = -1, out: Any = None, *, o_sf_scale: Any = None, kv_layout: str = "HND", sinks: Any = None,
    kv_cache_sf: Any = None, multi_ctas_kv_counter_buffer: Any = None,
) -> torch.Tensor:  # fmt: skip
    """Prefill of rows of any length. `cum_seq_lens_kv` is documented as cumulative key lengths [batch + 1].

    vLLM gives cumulative pages there. The model finds keys through `block_tables` and `seq_lens` alone: nothing that it
    computes depends on the values, and a shorter tensor is a read past its end all the same (`contracts.recorded` goes
    on). What the kernels, which come compiled, read of it is not known.
    """
    require(o_sf_scale is None and kv_cache_sf is None, "NVFP4 is not modelled")
    starts = offsets("cum_seq_lens_q", cum_seq_lens_q, batch_size)
    integers("cum_seq_lens_kv", cum_seq_lens_kv, batch_size + 1)
    return _paged(
        query, kv_cache, workspace_buffer, block_tables, seq_lens, starts, max_q_len, max_kv_len,
        bmm1_scale, bmm2_scale, window_left, out, kv_layout, sinks,
    )  # fmt: skip


def trtllm_batch_decode_with_kv_cache(
    query: Any, kv_cache: Any, workspace_buffer: Any, block_tables: Any, seq_lens: Any, max_seq_len: int,
    bmm1_scale: float = 1.0, bmm2_scale: float = 1.0, window_left: int = -1, out: Any = None, *, sinks: Any = None,
    o_sf_scale: Any = None, kv_layout: str = "HND", backend: str = "auto", q_len_per_req: int | None = 1,
    max_q_len: int | None = None, cum_seq_lens_q: Any = None, kv_cache_sf: Any = None, lse: Any = None,
    return_lse: bool = False, multi_ctas_kv_counter_buffer: Any = None,
) -> torch.Tensor:  # fmt: skip
    """Decode of rows of one length (`q_len_per_req`), or of any up to `max_q_len` with `cum_seq_lens_q` [batch + 1]."""
    require(backend == "trtllm-gen", f"backend {backend!r} is not modelled")
    require(o_sf_scale is None and kv_cache_sf is None, "NVFP4 is not modelled")
    require(lse is None and not return_lse, "log-sum-exp is not modelled")
    require((max_q_len is None) == (cum_seq_lens_q is None), "max_q_len and cum_seq_lens_q go together")
    require(torch.is_tensor(seq_lens) and seq_lens.dim() == 1, "seq_lens is no vector")
    if cum_seq_lens_q is not None:
        require(q_len_per_req is None, "with cum_seq_lens_q rows have no common length")
        starts, longest = offsets("cum_seq_lens_q", cum_seq_lens_q, len(seq_lens)), max_q_len
    else:
        require(bool(q_len_per_req) and len(query) % q_len_per_req == 0, f"{len(query)} tokens, {q_len_per_req} a row")
        starts, longest = list(range(0, len(query) + 1, q_len_per_req)), q_len_per_req
    return _paged(
        query, kv_cache, workspace_buffer, block_tables, seq_lens, starts, longest, max_seq_len, bmm1_scale, bmm2_scale,
        window_left, out, kv_layout, sinks,
    )  # fmt: skip


def _paged(
    query: Any, kv_cache: Any, workspace: Any, table: Any, seq_lens: Any, starts: list[int], longest: Any, most: int,
    scale: float, value_factor: float, window_left: int, out: Any, layout: str, sinks: Any,
) -> torch.Tensor:  # fmt: skip
    """What both have in common; all tensors but the cache lie together."""
    rows, heads = len(starts) - 1, query.shape[1]
    vectors("query", query, (starts[-1], *query.shape[1:]), (*FLOATS, *FP8))
    require(workspace.is_contiguous(), "the workspace is not contiguous")
    require(
        table.dim() == 2 and table.dtype == torch.int32 and table.is_contiguous(), "block_tables are no int32 table"
    )
    read("block_tables", rows, table.shape[0])
    lengths = integers("seq_lens", seq_lens, rows).tolist()
    cache = Cache.of(kv_cache, layout, query, aligned=True)
    if sinks is not None:
        vectors("sinks", sinks, (heads,), (torch.float32,))
    out = torch.empty_like(query) if out is None else out
    vectors("out", out, query.shape, (query.dtype, torch.float16, torch.bfloat16))
    found = []
    for row, (first, end) in enumerate(pairwise(starts)):
        keys = lengths[row] if row < len(lengths) else 0
        require(end - first <= longest, f"row {row} has {end - first} query tokens, said are at most {longest}")
        require(keys <= most, f"row {row} has {keys} keys, said are at most {most}")
        require(keys == 0 or end - first <= keys, f"row {row} has {end - first} query tokens and {keys} keys")
        pages = pages_of("block_tables", table, row, keys, cache.page_size)
        found.append(Row(slice(first, end), pages, keys, causal(end - first, keys, window_left)))
    softmax = Softmax(float(scale), 0.0, sinks, 1.0, float(value_factor))
    write(out, attention(query, cache, found, softmax))
    return out
