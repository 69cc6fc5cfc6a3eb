"""The interpreter against FlashInfer's own Python references: the vendor's second opinion, where both model the same.

Runs inside an environment. `flashinfer.trace.templates.attention` computes in float32 and rounds to bfloat16 in places.
It models less than the kernels do: its paged references take whole last pages, its decode ones have no causal mask for
several query tokens of a request, and XQA's has no packed mask. So pages are full there, and decodes have one token.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from flashinfer.trace.templates import attention as vendor

from cases import interpreter

PAGE, PAGES, KV_HEADS, GROUP, SIZE = 4, 16, 2, 3, 8
SCALE = 0.3
RANDOM = np.random.default_rng(7)
KEYS, VALUES = RANDOM.uniform(-1, 1, (2, PAGES * PAGE, KV_HEADS, SIZE))
TABLE = RANDOM.permutation(PAGES)[:12].reshape(3, 4)
STARTS = np.array([0, 5, 6, 10])


def ours(metadata: Any, queries: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return interpreter.attention(interpreter.rows(metadata, PAGE), queries, KEYS, VALUES, SCALE)


def tokens(count: int) -> np.ndarray[Any, Any]:
    return RANDOM.uniform(-1, 1, (count, KV_HEADS * GROUP, SIZE))


def nhd(slots: np.ndarray[Any, Any]) -> torch.Tensor:
    """[pages, tokens of a page, KV heads, size]."""
    return torch.from_numpy(slots.reshape(PAGES, PAGE, KV_HEADS, SIZE))


def hnd() -> torch.Tensor:
    """[pages, keys and values, KV heads, tokens of a page, size]."""
    return torch.stack([nhd(KEYS), nhd(VALUES)], dim=1).transpose(2, 3).contiguous()


def part(**of: Any) -> SimpleNamespace:
    return SimpleNamespace(max_seq_len=PAGE * 4, block_tables=TABLE, **of)


def metadata(decode: Any = None, prefill: Any = None, rows: int = 3, tokens: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        num_decodes=rows if decode else 0, num_decode_tokens=tokens, num_prefills=rows if prefill else 0,
        decode=decode, prefill=prefill,
    )  # fmt: skip


def wrapper(pages: tuple[int, ...], **more: Any) -> SimpleNamespace:
    indptr = np.cumsum((0, *pages))
    indices = np.concatenate([row[:n] for row, n in zip(TABLE, pages, strict=True)])
    last = np.full(len(pages), PAGE)
    planned = {"indptr": indptr, "indices": indices, "last_page_len": last, "page_size": PAGE, **more}
    return SimpleNamespace(wrapper=SimpleNamespace(planned=planned))


BFLOAT16 = {"rtol": 0, "atol": 2**-8}
"""Outputs are below 1, where bfloat16 has 8 bits."""


@pytest.mark.parametrize("pages", [(3, 1, 2), (4, 4, 4)])
def test_native_decode(pages: tuple[int, ...]) -> None:
    queries, of = tokens(3), wrapper(pages)
    planned = of.wrapper.planned
    theirs, _ = vendor._gqa_paged_decode_reference(
        torch.from_numpy(queries), nhd(KEYS), nhd(VALUES),
        torch.from_numpy(planned["indptr"]), torch.from_numpy(planned["indices"]), SCALE,
    )  # fmt: skip
    np.testing.assert_allclose(ours(metadata(decode=of, tokens=3), queries), theirs.double(), **BFLOAT16)


@pytest.mark.parametrize("pages", [(3, 1, 2), (4, 4, 4)])
def test_native_prefill(pages: tuple[int, ...]) -> None:
    queries, of = tokens(10), wrapper(pages, qo_indptr=STARTS, causal=True)
    planned = of.wrapper.planned
    theirs, _ = vendor._gqa_paged_prefill_reference(
        torch.from_numpy(queries), nhd(KEYS), nhd(VALUES), torch.from_numpy(STARTS),
        torch.from_numpy(planned["indptr"]), torch.from_numpy(planned["indices"]), SCALE,
    )  # fmt: skip
    np.testing.assert_allclose(ours(metadata(prefill=of), queries), theirs.double(), **BFLOAT16)


FLOAT32 = {"rtol": 0, "atol": 1e-6}


def test_trtllm_context() -> None:
    """Lengths that end inside a page: this reference cuts the last one."""
    queries, lens = tokens(10), np.array([9, 1, 15])
    theirs = vendor._trtllm_batch_context_reference(
        torch.from_numpy(queries), hnd(), None, torch.from_numpy(TABLE), torch.from_numpy(lens), 5, 16, SCALE, 1.0, 3,
        torch.from_numpy(STARTS), None,
    )  # fmt: skip
    of = part(cum_seq_lens_q=STARTS, cum_seq_lens_kv=np.zeros(4), seq_lens=lens, max_q_len=5)
    np.testing.assert_allclose(ours(metadata(prefill=of), queries), theirs, **FLOAT32)


@pytest.mark.parametrize("kernel", ["xqa", "trtllm-gen"])
def test_decodes_of_one_token(kernel: str) -> None:
    queries, lens = tokens(3), np.array([9, 1, 15])
    reference = {"xqa": vendor._xqa_batch_decode_reference, "trtllm-gen": vendor._trtllm_batch_decode_reference}[kernel]
    theirs = reference(
        torch.from_numpy(queries), hnd(), None, torch.from_numpy(TABLE), torch.from_numpy(lens), 16, bmm1_scale=SCALE
    )
    of = part(
        kernel=SimpleNamespace(value=kernel), q_len_per_req=1, q_cu_seq_lens=None, mask=None, seq_lens=lens
    )  # fmt: skip
    np.testing.assert_allclose(ours(metadata(decode=of, tokens=3), queries), theirs, **FLOAT32)


def test_a_full_draft_mask_is_the_vendors_decode_without_causality() -> None:
    """The one thing the vendor's XQA reference says about windows: all tokens see all keys."""
    queries, lens = tokens(6), np.array([9, 2, 15])
    theirs = vendor._xqa_batch_decode_reference(
        torch.from_numpy(queries), hnd(), None, torch.from_numpy(TABLE), torch.from_numpy(lens), 16, bmm1_scale=SCALE
    )
    mask = np.tile(np.array([0b11, 0], np.uint16), (3, 2, 1))
    of = part(kernel=SimpleNamespace(value="xqa"), q_len_per_req=2, q_cu_seq_lens=None, mask=mask, seq_lens=lens)
    np.testing.assert_allclose(ours(metadata(decode=of, tokens=6), queries), theirs, **FLOAT32)
