"""Rows as the paged kernels find them: through a block table and lengths, or through FlashInfer's three tables."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cases.interpreter.rows import (
    Bools,
    ContractBroken,
    Row,
    TooShort,
    causal,
    everything,
    lengths_of,
    numbers,
    slots_of,
    tokens_of,
)

Mask = Callable[[int, int], Bools]


def by_block_table(
    name: str, first: int, starts: Any, lengths: Any, table: Any, size: int, *,
    is_causal: bool, longest_query: int, longest_row: int, masks: list[Bools] | None = None,
) -> Iterator[Row]:  # fmt: skip
    """The rows of a call that takes a block table [rows, pages], key lengths [rows] and query starts [rows + 1].

    Contract (flash_attn_varlen_func of FlashAttention, `trtllm_batch_context_with_kv_cache` and
    `trtllm_batch_decode_with_kv_cache` of FlashInfer, vLLM's `unified_attention`): key j of row r is entry j % size of
    page table[r, j // size], for j below the row's length; the two maxima bound what is launched, so nothing may exceed
    them. `masks` (of the last keys, one per row) replaces the causal mask: see draft_mask.
    """
    starts, lengths, table = numbers(starts).astype(np.int64), numbers(lengths), numbers(table)
    query_lens = lengths_of(f"{name} query starts", starts)
    rows = len(query_lens)
    if len(lengths) < rows or len(table) < rows:
        raise ContractBroken(f"{name}: {rows} rows have {len(lengths)} lengths and {len(table)} rows of pages")
    lengths = lengths[:rows]
    if rows and query_lens.max() > longest_query:
        raise ContractBroken(
            f"{name}: a row has {query_lens.max()} query tokens, the longest is said to be {longest_query}"
        )
    if rows and lengths.max() > longest_row:
        raise ContractBroken(f"{name}: a row has {lengths.max()} keys, the longest is said to be {longest_row}")
    if rows and -(-int(lengths.max()) // size) > table.shape[1]:
        raise ContractBroken(f"{name}: {lengths.max()} keys need more pages than the {table.shape[1]} of a row")
    for row, tokens in enumerate(tokens_of(first, starts)):
        queries, keys = len(tokens), int(lengths[row])
        visible = causal(queries, keys) if is_causal and masks is None else everything(queries, keys)
        if masks is not None and keys >= queries:
            visible[:, keys - queries :] = masks[row]
        yield Row(tokens, slots_of(table[row], keys, size), visible)


def by_pointers(name: str, first: int, planned: dict[str, Any], size: int) -> Iterator[Row]:
    """The rows that a FlashInfer wrapper was planned for.

    Contract (FlashInfer, "KV-Cache Layout in FlashInfer", and `plan` of the two paged wrappers): row r has the pages
    indices[indptr[r] : indptr[r + 1]], all full but the last, which has last_page_len[r] entries; a prefill wrapper's
    row has the query tokens qo_indptr[r] : qo_indptr[r + 1] and is causal if it was told so; a decode wrapper's row has
    one token, which sees all keys, or the same number of tokens as all others, which are causal.
    """
    pointers, indices = numbers(planned["indptr"]), numbers(planned["indices"])
    last = numbers(planned["last_page_len"])
    size = planned.get("page_size", size)
    even = planned.get("q_len_per_req", 1)
    starts = numbers(planned.get("qo_indptr", even * np.arange(len(last) + 1))).astype(np.int64)
    lengths_of(f"{name} query starts", starts)
    if len(pointers) != len(starts) or len(last) != len(starts) - 1:
        raise ContractBroken(f"{name}: {len(starts) - 1} rows have {len(pointers)} pointers, {len(last)} last pages")
    if (np.diff(pointers) < 1).any() or pointers[-1] > len(indices) or not ((last >= 1) & (last <= size)).all():
        raise ContractBroken(
            f"{name}: pointers {pointers.tolist()[:8]} into {len(indices)} pages, last ones hold {last[:8]}"
        )
    mask = causal if planned.get("causal", "qo_indptr" in planned or even > 1) else everything
    heads = planned.get("num_qo_heads"), planned.get("num_kv_heads")
    group = heads[0] // heads[1] if all(heads) else None
    for row, tokens in enumerate(tokens_of(first, starts)):
        pages = indices[pointers[row] : pointers[row + 1]]
        keys = (len(pages) - 1) * size + int(last[row])
        visible = mask(len(tokens), keys)
        yield Row(tokens, slots_of(pages, keys, size), visible, planned.get("sm_scale"), group)


def needs(name: str, tensor: Any, entries: int) -> None:
    """TooShort if a kernel reads more entries than a tensor has."""
    if len(tensor) < entries:
        raise TooShort(f"{name} has {len(tensor)} entries, the kernel reads {entries}")
