"""Chunked local attention by its definition. Shares no code with vLLM.

Definition (Llama 4): the sequence is cut into chunks of c tokens; the query token at position i attends to the key at
position j if and only if j <= i and both lie in the same chunk, that is i // c == j // c. Positions count from 0; a
request with `query_len` tokens scheduled and `seq_len` tokens in all has its query at the last `query_len` positions.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reach:
    """For each query token, in batch order: the request, and the run of key positions [first, first + count)."""

    request: Ints
    first: Ints
    count: Ints


def reach(query_lens: Ints, seq_lens: Ints, chunk: int) -> Reach:
    """The key positions each query token attends to. Shapes: all of the result is [sum(query_lens)]."""
    request = np.repeat(np.arange(len(query_lens)), query_lens)
    position = np.concatenate([np.arange(s - q, s) for q, s in zip(query_lens, seq_lens, strict=True)])
    first = position // chunk * chunk
    return Reach(request, first, position - first + 1)


def virtual_batches(query_lens: Ints, seq_lens: Ints, chunk: int) -> int:
    """Rows after splitting: for each request, the number of chunks that its query tokens touch."""
    start = seq_lens - query_lens
    return int(np.sum((seq_lens - 1) // chunk - start // chunk + 1))


@dataclass(frozen=True)
class Rows:
    """The virtual batches of a step, in batch order: query tokens and keys of each row. Shapes [rows].

    `request` is whose row it is, `first` the position of the first key that it may see.
    """

    query_lens: Ints
    key_lens: Ints
    request: Ints
    first: Ints


def rows(query_lens: Ints, seq_lens: Ints, chunk: int) -> Rows:
    """One row per request and chunk that its query touches: its tokens there, and the keys up to the last of them."""
    local = reach(query_lens, seq_lens, chunk)
    starts = np.flatnonzero(np.diff(local.request, prepend=-1) | np.diff(local.first, prepend=-1))
    ends = np.append(starts[1:], len(local.request))
    last = ends - 1
    return Rows(ends - starts, local.count[last], local.request[last], local.first[last])


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
    cache: Cache, query_lens: Ints, seq_lens: Ints, chunk: int, block_table: Ints, block_size: int, scale: float
) -> Floats:
    """Chunked local attention of each query token and head, from the requests' own block table [requests, pages].

    softmax(scale * q k^T) v over the keys of the definition (Vaswani et al., 2017, eq. 1); consecutive query heads
    share a KV head (grouped-query attention, Ainslie et al., 2023). Shape of the result: as `cache.queries`.
    """
    local = reach(query_lens, seq_lens, chunk)
    group = cache.queries.shape[1] // cache.keys.shape[1]
    out = np.empty_like(cache.queries)
    of_a_row = np.flatnonzero(np.diff(local.request, prepend=-1) | np.diff(local.first, prepend=-1))
    for tokens in np.split(np.arange(len(out)), of_a_row[1:]):  # those of one request and chunk need the same keys
        last = tokens[-1]
        position = np.arange(local.count[last])
        slot = slots(block_table[local.request[last]], local.first[last] + position, block_size)
        seen = position < local.count[tokens][:, None, None]
        for head in range(cache.keys.shape[1]):
            heads = slice(head * group, (head + 1) * group)
            weight = seen * np.exp(scale * cache.queries[tokens, heads] @ cache.keys[slot, head].T)
            out[tokens, heads] = weight @ cache.values[slot, head] / weight.sum(axis=-1, keepdims=True)
    return out
