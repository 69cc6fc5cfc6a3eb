"""FlashInfer's metadata until 0.13, told as from 0.14 on: what its prefill kernel gets, and what its decode kernel.

Until then it is one flat record, and `FlashInferImpl.forward` takes from it what each kernel gets, as done here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cases.handed import COUNT, handed

COUNTS = ("num_actual_tokens", "num_decodes", "num_decode_tokens", "num_prefills", "num_prefill_tokens")


@dataclass(frozen=True)
class Wrapped:
    """Goes to one of FlashInfer's own wrappers, which was told the rows when it was planned."""

    wrapper: Any


@dataclass(frozen=True)
class TRTLLMPrefill:
    """What `trtllm_batch_context_with_kv_cache` gets."""

    block_tables: Any
    seq_lens: Any
    cum_seq_lens_q: Any
    cum_seq_lens_kv: Any
    max_q_len: int
    max_seq_len: int


@dataclass(frozen=True)
class TRTLLMDecode:
    """What `trtllm_batch_decode_with_kv_cache` gets; forward divides the tokens by the rows for the length of each."""

    block_tables: Any
    seq_lens: Any
    max_seq_len: int


@dataclass(frozen=True)
class FlashInferMetadata:
    """The step, and what either kernel gets of it."""

    num_actual_tokens: int
    slot_mapping: Any
    num_decodes: int
    num_decode_tokens: int
    num_prefills: int
    num_prefill_tokens: int
    prefill: Wrapped | TRTLLMPrefill | None
    decode: Wrapped | TRTLLMDecode | None


def in_parts(flat: Any, decodes_by_trtllm: Callable[..., bool] | None = None) -> Any:
    """FlashInfer's metadata in parts, other backends' as it is.

    `decodes_by_trtllm` is asked by 0.10.0, where the record does not say it and nothing is prefilled by trtllm-gen.
    """
    if type(flat).__name__ != "FlashInferMetadata":
        return flat
    for name in COUNTS:
        handed(f"metadata.{name}", getattr(flat, name), COUNT)
    counts = (flat.num_decodes, flat.num_decode_tokens, flat.num_prefills, flat.num_prefill_tokens)
    prefill = _prefill(flat) if flat.num_prefill_tokens else None
    decode = _decode(flat, decodes_by_trtllm) if flat.num_decode_tokens else None
    return FlashInferMetadata(flat.num_actual_tokens, flat.slot_mapping, *counts, prefill, decode)


def _prefill(flat: Any) -> Wrapped | TRTLLMPrefill:
    if not getattr(flat, "prefill_use_trtllm", False):
        return Wrapped(flat.prefill_wrapper)
    return TRTLLMPrefill(
        flat.block_table_tensor[flat.num_decodes :],
        flat.seq_lens[flat.num_decodes :],
        flat.qo_indptr_gpu,
        flat.paged_kv_indptr_gpu,
        int(getattr(flat, "max_q_len_prefill", flat.max_q_len)),
        int(flat.max_seq_len),
    )


def _decode(flat: Any, by_trtllm: Callable[..., bool] | None) -> Wrapped | TRTLLMDecode:
    if by_trtllm:
        cache = "auto" if flat.kv_data_type == flat.q_data_type else str(flat.kv_data_type)
        heads = flat.num_qo_heads, flat.num_kv_heads, flat.head_dim
        trtllm = by_trtllm(flat.num_decodes, flat.max_seq_len, cache, *heads)
    else:
        trtllm = flat.decode_use_trtllm
    if not trtllm:
        return Wrapped(flat.decode_wrapper)
    rows = slice(0, flat.num_decodes)
    return TRTLLMDecode(flat.block_table_tensor[rows], flat.seq_lens[rows], int(flat.max_seq_len))
