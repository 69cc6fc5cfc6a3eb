"""FlashInfer's metadata until 0.13, told as from 0.14 on: what its prefill kernel gets, and what its decode kernel.

Until then it is one flat record, and `FlashInferImpl.forward` takes from it what each kernel gets, as done here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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
    """What `trtllm_batch_decode_with_kv_cache` gets; it takes as many query tokens of each row as there are per row."""

    block_tables: Any
    seq_lens: Any
    max_seq_len: int


class InParts:
    """The flat record with its two parts beside."""

    def __init__(self, flat: Any, prefill: Any, decode: Any) -> None:
        self.prefill, self.decode = prefill, decode
        self._flat = flat

    def __getattr__(self, name: str) -> Any:
        return getattr(self._flat, name)


def in_parts(flat: Any, decodes_by_trtllm: Callable[..., bool] | None = None) -> Any:
    """FlashInfer's metadata in parts, other backends' as it is.

    `decodes_by_trtllm` is asked by 0.10.0, where the record does not say it and has no prefill by trtllm-gen.
    """
    if type(flat).__name__ != "FlashInferMetadata":
        return flat
    decodes, prefill, decode = flat.num_decodes, None, None
    if decodes_by_trtllm:
        cache = "auto" if flat.kv_data_type == flat.q_data_type else str(flat.kv_data_type)
        heads = flat.num_qo_heads, flat.num_kv_heads, flat.head_dim
        by_trtllm = decodes_by_trtllm(decodes, flat.max_seq_len, cache, *heads), False
    else:
        by_trtllm = flat.decode_use_trtllm, flat.prefill_use_trtllm
    if flat.num_decode_tokens:
        decode = Wrapped(flat.decode_wrapper)
        if by_trtllm[0]:
            decode = TRTLLMDecode(flat.block_table_tensor[:decodes], flat.seq_lens[:decodes], flat.max_seq_len)
    if flat.num_prefill_tokens:
        prefill = Wrapped(flat.prefill_wrapper)
        if by_trtllm[1]:
            prefill = TRTLLMPrefill(
                flat.block_table_tensor[decodes:],
                flat.seq_lens[decodes:],
                flat.qo_indptr_gpu,
                flat.paged_kv_indptr_gpu,
                getattr(flat, "max_q_len_prefill", flat.max_q_len),
                flat.max_seq_len,
            )
    return InParts(flat, prefill, decode)
