"""Models of FlashInfer's paged wrappers, which plan a batch on the host and run it: the native kernels.

Source: FlashInfer 0.7.2, `flashinfer/prefill.py` and `decode.py`, documentation of the classes of the same names, and
`csrc/batch_prefill.cu`. Not modelled: CUDA-graph buffers, custom masks, rotary and ALiBi positions, log-sum-exp, NVFP4,
the choice between backends (fa2, fa3, cudnn and others compute the same), the buffers that a plan takes on the device.
"""

import math
from itertools import pairwise
from typing import Any

import torch

from attnmatrix_vllm.contracts import FLOATS, FP8, ContractBroken, require, vectors
from attnmatrix_vllm.paged_attention import Cache, Row, Softmax, attention, causal, write


class _PagedWrapper:
    """What the paged wrappers share: a workspace, a layout, the checks on a paged KV table, and a run by a plan."""

    def __init__(self, _workspace: Any, kv_layout: str = "NHD", **options: Any) -> None:
        if kv_layout not in ("NHD", "HND"):
            raise ContractBroken(f"kv_layout is {kv_layout!r}, documented are NHD and HND")
        self.is_cuda_graph_enabled = bool(options.get("use_cuda_graph"))
        self.planned: dict[str, Any] = {}
        self._kv_layout = kv_layout

    def _check_table(self, indptr: Any, indices: Any, last_page_len: Any, page_size: int) -> int:
        """indptr is [rows + 1] and never falls; indices is as long as its end; last pages hold 1..page_size tokens."""
        rows = last_page_len.shape[0]
        if indptr.shape[0] != rows + 1:
            raise ContractBroken(f"paged_kv_indptr has {indptr.shape[0]} entries for {rows} rows")
        if bool((indptr[1:] < indptr[:-1]).any()):
            raise ContractBroken("paged_kv_indptr falls")
        if int(indptr[-1]) > indices.shape[0]:
            raise ContractBroken(f"paged_kv_indptr ends at {int(indptr[-1])}, paged_kv_indices has {indices.shape[0]}")
        occupied = indptr[1:] > indptr[:-1]
        wrong = occupied & ((last_page_len < 1) | (last_page_len > page_size))
        if bool(wrong.any()):
            raise ContractBroken(
                f"paged_kv_last_page_len leaves 1..{page_size} in rows {wrong.nonzero().flatten().tolist()}"
            )
        return int(rows)

    def _plan(self, options: dict[str, Any], head_dim: int) -> None:
        """The names under which FlashInfer's wrappers keep what was planned, and vLLM looks at it before a run.

        Tables that a caller keeps on the host are copied to the device by `plan`: later changes do not count.
        """
        for name in ("qo_indptr", "indptr", "last_page_len"):
            if name in self.planned:
                self.planned[name] = self.planned[name].clone()
        scale, soft_cap = options.get("sm_scale"), options.get("logits_soft_cap")
        self._sm_scale = 1.0 / math.sqrt(head_dim) if scale is None else scale
        self._logits_soft_cap = 0.0 if soft_cap is None else soft_cap
        self._window_left = options.get("window_left", -1)
        self._causal = bool(options.get("causal", False))

    def run(
        self, q: Any, paged_kv_cache: Any, *, q_scale: Any = None, k_scale: Any = None, v_scale: Any = None,
        out: Any = None, sinks: Any = None, kv_cache_sf: Any = None,
    ) -> torch.Tensor:  # fmt: skip
        """Attention of the planned rows. q is [tokens, heads, size], the cache a pair in the wrapper's layout.

        Scales are of FP8 inputs; real kernels multiply by `v_scale` after rounding to the output's dtype, here before.
        """
        require(bool(self.planned), "run before plan")
        planned, starts = self.planned, self._query_starts()
        of_queries = _dtype(planned.get("q_data_type", "float16"))
        shape = (starts[-1], planned["num_qo_heads"], planned["head_dim"])
        vectors("q", q, shape, (of_queries,), dense=False)
        require(of_queries in (*FLOATS, *FP8), f"queries of {of_queries}")
        cache = Cache.of(paged_kv_cache, self._kv_layout, q)
        of_keys = _dtype(planned.get("kv_data_type") or of_queries)
        require(cache.keys.dtype == of_keys, f"the cache is {cache.keys.dtype}, planned was {of_keys}")
        require(cache.page_size == planned["page_size"], f"pages of {cache.page_size}, planned {planned['page_size']}")
        require(cache.heads == planned["num_kv_heads"], f"{cache.heads} KV heads, planned {planned['num_kv_heads']}")
        require(kv_cache_sf is None, "NVFP4 is not modelled")
        of_output = _dtype(planned.get("o_data_type") or (of_queries if of_queries not in FP8 else "float16"))
        if sinks is not None:
            vectors("sinks", sinks, shape[1:2], (torch.float32,))
        if out is None:
            out = torch.empty(shape, dtype=of_output)
        vectors("out", out, shape, (of_output,))
        factors = [1.0 if scale is None else float(scale) for scale in (q_scale, k_scale, v_scale)]
        softmax = Softmax(self._sm_scale * factors[0] * factors[1], self._logits_soft_cap, sinks, 1.0, factors[2])
        write(out, attention(q, cache, self._rows(starts), softmax))
        return out

    def _rows(self, starts: list[int]) -> list[Row]:
        ends, last = self.planned["indptr"].tolist(), self.planned["last_page_len"].tolist()
        rows = []
        for nth, (first, end) in enumerate(pairwise(ends)):
            keys = (end - first - 1) * self.planned["page_size"] + last[nth] if end > first else 0
            tokens = slice(starts[nth], starts[nth + 1])
            seen = causal(tokens.stop - tokens.start, keys, self._window_left, 0 if self._causal else -1)
            rows.append(Row(tokens, self.planned["indices"][first:end].long(), keys, seen))
        return rows

    def _query_starts(self) -> list[int]:
        raise NotImplementedError


class BatchPrefillWithPagedKVCacheWrapper(_PagedWrapper):
    """Models FlashInfer's prefill wrapper of the same name."""

    def plan(  # FlashInfer's order of arguments: until 0.16 vLLM gives the first eight without their names
        self, qo_indptr: Any, paged_kv_indptr: Any, paged_kv_indices: Any, paged_kv_last_page_len: Any,
        num_qo_heads: int, num_kv_heads: int, head_dim_qk: int, page_size: int, *,
        seq_lens: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        """Check the documented shapes and ranges."""
        rows = self._check_table(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size)
        if qo_indptr.shape[0] != rows + 1:
            raise ContractBroken(f"qo_indptr has {qo_indptr.shape[0]} entries for {rows} rows")
        query_lens = qo_indptr[1:] - qo_indptr[:-1]
        if bool((query_lens < 0).any()) or int(qo_indptr[0]) != 0:
            raise ContractBroken("qo_indptr does not start at 0 or falls")
        keys = (paged_kv_indptr[1:] - paged_kv_indptr[:-1] - 1) * page_size + paged_kv_last_page_len
        if options.get("causal") and bool((query_lens > (keys if seq_lens is None else seq_lens)).any()):
            raise ContractBroken("a row has more query tokens than keys")
        self.planned = {
            "qo_indptr": qo_indptr,
            "indptr": paged_kv_indptr,
            "indices": paged_kv_indices,
            "last_page_len": paged_kv_last_page_len,
            "page_size": page_size,
            "num_qo_heads": num_qo_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim_qk,
            **options,
        }
        self._plan(options, head_dim_qk)

    def _query_starts(self) -> list[int]:
        starts: list[int] = self.planned["qo_indptr"].tolist()
        return starts


class BatchDecodeWithPagedKVCacheWrapper(_PagedWrapper):
    """Models FlashInfer's decode wrapper of the same name: one query token a row, which sees all keys of its row."""

    def plan(
        self, indptr: Any, indices: Any, last_page_len: Any,
        num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int,
        *_: Any, **options: Any,
    ) -> None:  # fmt: skip
        """Check the documented shapes and ranges."""
        self._check_table(indptr, indices, last_page_len, page_size)
        tables = {"indptr": indptr, "indices": indices, "last_page_len": last_page_len, "page_size": page_size}
        shape = {"num_qo_heads": num_qo_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
        self.planned = {**tables, **shape, **options}
        self._plan(options, head_dim)

    def _query_starts(self) -> list[int]:
        require(self.planned.get("q_len_per_req", 1) == 1, "decodes of several tokens are not modelled")
        return list(range(len(self.planned["last_page_len"]) + 1))


def _dtype(named: torch.dtype | str) -> torch.dtype:
    """A dtype by itself or by its name in torch."""
    found = getattr(torch, named) if isinstance(named, str) else named
    require(isinstance(found, torch.dtype), f"{named!r} is no dtype")
    return found
