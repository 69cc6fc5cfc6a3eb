"""Attention by its definition, for a pattern of what a token sees. Shares no code with vLLM.

A request with `query_len` tokens scheduled and `seq_len` tokens in all has its query at the last `query_len` positions.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cases.patterns import Ints, Pattern

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reach:
    """For each query token, in batch order: the request, and the run of key positions [first, first + count)."""

    request: Ints
    first: Ints
    count: Ints


def reach(query_lens: Ints, seq_lens: Ints, pattern: Pattern) -> Reach:
    """The key positions each query token attends to. Shapes: all of the result is [sum(query_lens)]."""
    request = np.repeat(np.arange(len(query_lens)), query_lens)
    position = np.concatenate([np.arange(s - q, s) for q, s in zip(query_lens, seq_lens, strict=True)])
    first = pattern.first(position)
    return Reach(request, first, position - first + 1)


@dataclass(frozen=True)
class Rows:
    """The rows that a builder makes of a step, in batch order: query tokens and keys of each. Shapes [rows].

    With chunks these are the virtual batches. `request` is whose row it is, `first` the position of its first key.
    """

    query_lens: Ints
    key_lens: Ints
    request: Ints
    first: Ints


def rows(query_lens: Ints, seq_lens: Ints, pattern: Pattern) -> Rows:
    """One row per request and start of its query tokens' rows: those tokens, and the keys up to the last of them."""
    seen = reach(query_lens, seq_lens, pattern)
    position = seen.first + seen.count - 1
    start = pattern.start(position)
    begins = np.flatnonzero(np.diff(seen.request, prepend=-1) | np.diff(start, prepend=-1))
    ends = np.append(begins[1:], len(position))
    last = ends - 1
    return Rows(ends - begins, position[last] - start[last] + 1, seen.request[last], start[last])


def virtual_batches(query_lens: Ints, seq_lens: Ints, pattern: Pattern) -> int:
    """How many rows a builder makes of a step."""
    return len(rows(query_lens, seq_lens, pattern).query_lens)


def slots(block_table: Ints, positions: Ints, block_size: int) -> Ints:
    """Physical KV slots of key positions: the page that the block table has for each, times its size, plus the rest.

    Shapes: [..., pages] and [positions] give [..., positions]. Positions past the table give its last page.
    """
    page = np.minimum(positions // block_size, block_table.shape[-1] - 1)
    return block_table[..., page] * block_size + positions % block_size


def draft_mask(query_len: int) -> NDArray[np.bool_]:
    """Which draft token a verify window's query token sees: itself and those before it. Shape [query_len] * 2."""
    return np.tril(np.ones((query_len, query_len), dtype=bool))


def pages(seq_lens: Ints, block_size: int) -> Ints:
    """KV-cache pages that hold each sequence."""
    return -(-seq_lens // block_size)


@dataclass(frozen=True)
class Cache:
    """A paged KV cache and the queries of one step, in float64.

    Shapes: queries [tokens, heads, size], keys and values [slots, KV heads, size].
    """

    queries: Floats
    keys: Floats
    values: Floats


def attention(
    cache: Cache, query_lens: Ints, seq_lens: Ints, pattern: Pattern, block_table: Ints, block_size: int, scale: float
) -> Floats:
    """Attention of each query token and head, from the requests' own block table [requests, pages].

    softmax(scale * q k^T) v over the keys of the definition (Vaswani et al., 2017, eq. 1); consecutive query heads
    share a KV head (grouped-query attention, Ainslie et al., 2023). Shape of the result: as `cache.queries`.
    """
    seen, split = reach(query_lens, seq_lens, pattern), rows(query_lens, seq_lens, pattern)
    group = cache.queries.shape[1] // cache.keys.shape[1]
    out = np.empty_like(cache.queries)
    ends = np.cumsum(split.query_lens)
    for row, tokens in enumerate(np.split(np.arange(len(out)), ends[:-1])):  # those of one row need the same keys
        key = split.first[row] + np.arange(split.key_lens[row])
        slot = slots(block_table[split.request[row]], key, block_size)
        first, count = seen.first[tokens][:, None, None], seen.count[tokens][:, None, None]
        visible = (key >= first) & (key < first + count)
        for head in range(cache.keys.shape[1]):
            heads = slice(head * group, (head + 1) * group)
            weight = visible * np.exp(scale * cache.queries[tokens, heads] @ cache.keys[slot, head].T)
            out[tokens, heads] = weight @ cache.values[slot, head] / weight.sum(axis=-1, keepdims=True)
    return out
