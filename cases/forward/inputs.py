"""Queries, keys and values of one step in the deployment's dtype, and the attention of the definition in them.

The query heads of the first KV head have random numbers. Those of the others have zero queries and keys, and each key's
value is 1 in one place and 0 elsewhere: an output counts the keys of each place over all keys, so that it names them.
Each run of as many keys as a head has numbers has every place once, in an order of its own. Everything that no query of
the step may reach holds NaN.
"""

from dataclasses import dataclass

import numpy as np
import torch

from cases import reference
from cases.attention_inputs import SEED, Held
from cases.forward.tolerance import Sums
from cases.patterns import Pattern
from cases.reference import Floats, Ints
from cases.verdicts import Batch

Q_SCALE, K_SCALE, V_SCALE = 0.5, 0.25, 2.0
"""Scales of an FP8 cache and of FP8 queries, each another one: powers of two, so that no number is rounded by them."""


@dataclass(frozen=True)
class Inputs:
    """One step's numbers. Shapes: queries [tokens, heads, size]; keys and values [held, KV heads, size]; slots [held].

    `wanted` is the attention by the definition in float64, `sums` what its tolerance is derived from.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    slots: torch.Tensor
    wanted: Floats
    sums: Sums
    group: int

    @property
    def exact_heads(self) -> slice:
        """The query heads that count keys."""
        return slice(self.group, None)


@dataclass(frozen=True)
class Heads:
    """Counts of a layer, its dtypes, and what a page holds."""

    heads: int
    kv_heads: int
    size: int
    dtype: torch.dtype
    fp8: bool
    page: int


def of(batch: Batch, pattern: Pattern, table: Ints, shape: Heads) -> Inputs:
    """The step's inputs for a block table [requests, pages]."""
    query_lens, seq_lens = np.array(batch.query_lens), np.array(batch.seq_lens)
    held = Held.of(query_lens, seq_lens, pattern, table, shape.page)
    tokens, slots, group = int(query_lens.sum()), held.slots, shape.heads // shape.kv_heads
    rng = np.random.default_rng(SEED)
    queries = np.zeros((tokens, shape.heads, shape.size))
    queries[:, :group] = _stored(rng.uniform(-4, 4, (tokens, group, shape.size)), shape, Q_SCALE)
    keys, values = np.zeros((2, len(slots), shape.kv_heads, shape.size))
    keys[:, 0] = _stored(rng.uniform(-2, 2, keys[:, 0].shape), shape, K_SCALE)
    values[:, 0] = _stored(rng.uniform(-1, 1, values[:, 0].shape), shape, V_SCALE)
    places = _places(held.position[slots], held.request[slots], shape.size, rng)
    values[np.arange(len(slots)), 1:, places] = 1.0
    whole = np.full((2, len(held.request), shape.kv_heads, shape.size), np.nan)
    whole[0, slots], whole[1, slots] = keys, values
    scale = shape.size**-0.5

    def attention(queries: Floats, keys: Floats, values: Floats) -> Floats:
        cache = reference.Cache(queries, keys, values)
        return reference.attention(cache, query_lens, seq_lens, pattern, table, shape.page, scale)

    local = reference.reach(query_lens, seq_lens, pattern)
    largest = scale * np.abs(queries).sum(2) * np.abs(keys).max(initial=0.0)
    sums = Sums(attention(queries, whole[0], np.abs(whole[1])), largest, local.count.astype(np.float64))
    to = [torch.from_numpy(x).to(shape.dtype) for x in (queries, keys, values)]
    return Inputs(*to, torch.from_numpy(slots), attention(queries, *whole), sums, group)


def _stored(numbers: Floats, shape: Heads, scale: float) -> Floats:
    """The nearest numbers that the layer's dtype holds, and an FP8 cache too, over this scale."""
    rounded = torch.from_numpy(numbers).to(shape.dtype)
    if shape.fp8:
        rounded = (rounded.float() / scale).to(torch.float8_e4m3fn).float() * scale
    return rounded.double().numpy()


def _places(positions: Ints, requests: Ints, size: int, rng: np.random.Generator) -> Ints:
    """For each key the place of its 1: a permutation for each request and run of `size` positions."""
    runs, of_key = np.unique(np.stack([requests, positions // size]), axis=1, return_inverse=True)
    permuted = rng.permuted(np.tile(np.arange(size), (runs.shape[1], 1)), axis=1)
    return np.asarray(permuted[of_key.reshape(-1), positions % size])
