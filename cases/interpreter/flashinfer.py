"""FlashInfer's rows: the first num_decodes of a step go to one call, the others to another, with a contract each."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases.interpreter import draft_mask, paged
from cases.interpreter.rows import ContractBroken, Row, Unknown, numbers


def by_parts(metadata: Any, size: int) -> Iterator[Row]:
    """The rows of both calls; query tokens of the decodes come first."""
    if metadata.num_decodes:
        part = metadata.decode
        if hasattr(part, "wrapper"):
            yield from paged.by_pointers("decode", 0, _planned(part.wrapper), size)
        else:
            yield from _decode(part, metadata.num_decodes, metadata.num_decode_tokens, size)
    if metadata.num_prefills:
        part = metadata.prefill
        if hasattr(part, "wrapper"):
            yield from paged.by_pointers("prefill", metadata.num_decode_tokens, _planned(part.wrapper), size)
        else:
            yield from _prefill(part, metadata.num_prefills, metadata.num_decode_tokens, size)


def _decode(part: Any, rows: int, tokens: int, size: int) -> Iterator[Row]:
    """A call of `xqa_batch_decode_with_kv_cache` or `trtllm_batch_decode_with_kv_cache`.

    Windows of one length have no query starts: XQA is told their length, trtllm-gen num_decode_tokens / num_decodes by
    vLLM's forward. trtllm-gen's windows are causal; XQA's have a packed mask, without which all keys are seen.
    """
    starts, mask = getattr(part, "q_cu_seq_lens", None), getattr(part, "mask", None)
    by_xqa = getattr(getattr(part, "kernel", None), "value", None) == "xqa"
    told = getattr(part, "q_len_per_req", None)  # until 0.27 vLLM divides for XQA too
    longest = told if told is not None and (by_xqa or starts is not None) else tokens // rows
    ragged = starts is not None
    starts = numbers(starts) if ragged else np.arange(rows + 1) * longest
    if starts[-1] != tokens:
        raise ContractBroken(f"decode: the windows end at token {starts[-1]} of {tokens}")
    if by_xqa and longest > 1 and mask is None:
        raise ContractBroken(f"decode: XQA wants a draft mask for windows of {longest}, and has none")
    masks = draft_mask.unpack(mask, np.diff(starts), longest, ragged=ragged) if mask is not None else None
    yield from paged.by_block_table(
        "decode", 0, starts, part.seq_lens, part.block_tables, size,
        is_causal=True, longest_query=longest, longest_row=part.max_seq_len, masks=masks,
    )  # fmt: skip


def _prefill(part: Any, rows: int, first: int, size: int) -> Iterator[Row]:
    """A call of `trtllm_batch_context_with_kv_cache`.

    `cum_seq_lens_kv` is documented as [batch_size + 1]. Its values are not interpreted: keys are found through the
    block table, and FlashInfer's documentation speaks of lengths where vLLM passes pages. Another case judges them.
    """
    paged.needs("cum_seq_lens_kv", part.cum_seq_lens_kv, rows + 1)
    yield from paged.by_block_table(
        "prefill", first, part.cum_seq_lens_q, part.seq_lens, part.block_tables, size,
        is_causal=True, longest_query=part.max_q_len, longest_row=part.max_seq_len,
    )  # fmt: skip


PLANNED = {
    "indptr": "_paged_kv_indptr_buf",
    "indices": "_paged_kv_indices_buf",
    "last_page_len": "_paged_kv_last_page_len_buf",
    "qo_indptr": "_qo_indptr_buf",
    "causal": "_causal",
    "sm_scale": "_sm_scale",
    "num_qo_heads": "_num_qo_heads",
    "num_kv_heads": "_num_kv_heads",
}
"""Where FlashInfer's own wrappers keep what `plan` was given (0.7.2); read from its source, not run on a device yet."""


def _planned(wrapper: Any) -> dict[str, Any]:
    """What a wrapper was planned with: a stand-in says it, a real one keeps it in its attributes."""
    kept = {name: getattr(wrapper, place) for name, place in PLANNED.items() if hasattr(wrapper, place)}
    planned: dict[str, Any] = getattr(wrapper, "planned", None) or kept
    if not planned.keys() >= {"indptr", "indices", "last_page_len"}:
        raise Unknown(f"{type(wrapper).__name__} does not show what it was planned with")
    return planned
