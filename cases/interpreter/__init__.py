"""Attention in float64 from the metadata that a builder made, by the contracts that the kernels document.

Shares nothing with vLLM, nor with the reference: `rows` reads the tables of whatever backend the metadata is for,
`attention` computes. Which contract applies is told from what the metadata offers, in `rows` alone: the metadata of
another release needs a branch there and nothing else.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cases.interpreter import flashinfer, flex, paged
from cases.interpreter.rows import ContractBroken, Floats, Row, TooShort, Unknown

__all__ = ["ContractBroken", "Row", "TooShort", "Unknown", "attention", "rows"]


def rows(metadata: Any, block_size: int) -> list[Row]:
    """What the kernels would read for one step; `block_size` is the tokens of a page where the call does not say."""
    if hasattr(metadata, "num_decodes") and hasattr(metadata, "num_prefills"):
        return list(flashinfer.by_parts(metadata, block_size))
    if hasattr(metadata, "physical_to_logical"):
        return list(flex.by_block_mask(metadata.block_mask, metadata.num_actual_tokens))
    if hasattr(metadata, "block_table") and not getattr(metadata, "use_sdpa_prefill", False):
        found = paged.by_block_table(
            "", 0, metadata.query_start_loc, metadata.seq_lens, metadata.block_table, block_size,
            is_causal=bool(getattr(metadata, "causal", True)),
            longest_query=metadata.max_query_len, longest_row=metadata.max_seq_len,
        )  # fmt: skip
        return list(found)
    raise Unknown(f"no contract is known for {type(metadata).__name__}")


def attention(rows: Sequence[Row], queries: Floats, keys: Floats, values: Floats, scale: float) -> Floats:
    """softmax(scale * q k^T) v for each query token and head, over the slots that its row lets it see.

    Shapes: queries [tokens, heads, size], keys and values [slots, KV heads, size]; head h reads KV head h // group. A
    token that no row computes is NaN, and so is one that sees a NaN or a slot outside the cache; one that sees nothing
    is 0, as FlashAttention documents it.
    """
    out = np.full_like(queries, np.nan)
    for row in rows:
        group = queries.shape[1] // keys.shape[1]
        if row.group not in (None, group):
            raise ContractBroken(f"a call is told of {row.group} query heads per KV head, the layer has {group}")
        lost = (row.slots < 0) | (row.slots >= len(keys))
        slots = np.where(lost, 0, row.slots)
        k, v = keys[slots].transpose(1, 2, 0), values[slots].transpose(1, 0, 2)  # KV heads first
        poisoned = np.isnan(k).any(axis=(0, 1)) | np.isnan(v).any(axis=(0, 2)) | lost
        if poisoned.any():
            k, v = np.where(poisoned, 0.0, k), np.where(poisoned[:, None], 0.0, v)
        q = queries[row.tokens].reshape(len(row.tokens), -1, group, queries.shape[2]).transpose(1, 2, 0, 3)
        score = (row.scale if row.scale is not None else scale) * (q @ k[:, None])  # [KV heads, group, q, keys]
        weight = np.exp(score - score.max(axis=-1, keepdims=True, initial=0.0)) * row.visible
        total = weight.sum(axis=-1, keepdims=True)
        seen = np.divide(weight @ v[:, None], total, out=np.zeros_like(q), where=total > 0)
        out[row.tokens] = seen.transpose(2, 0, 1, 3).reshape(len(row.tokens), *queries.shape[1:])
        out[row.tokens[(row.visible & poisoned).any(axis=1)]] = np.nan
    return out
