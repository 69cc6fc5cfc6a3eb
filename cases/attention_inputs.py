"""Queries, keys and values that tell apart what a query saw, and a cache in which everything else is poison."""

from dataclasses import dataclass

import numpy as np

from cases import reference
from cases.patterns import Pattern

SEED = 20250401
"""Of every random number here; a message that names a batch and this seed can be computed again."""

SIZE = 2
"""Numbers per head: enough to tell sets of keys apart, as the values of a key are one pair of 2^52."""


@dataclass(frozen=True)
class Held:
    """Whose key each slot of a step's cache holds; -1 where no query of the step may reach, the null page too.

    Shapes: [slots], as far as the highest page of the block table.
    """

    request: reference.Ints
    position: reference.Ints

    @classmethod
    def of(
        cls, query_lens: reference.Ints, seq_lens: reference.Ints, pattern: Pattern, table: reference.Ints, size: int
    ) -> "Held":
        rows = reference.rows(query_lens, seq_lens, pattern)
        request, position = np.full((2, size * (1 + int(table.max()))), -1)
        for of, first, count in zip(rows.request, rows.first, rows.key_lens, strict=True):
            keys = np.arange(first, first + count)
            slots = reference.slots(table[of], keys, size)
            request[slots], position[slots] = of, keys
        return cls(request, position)

    @property
    def slots(self) -> reference.Ints:
        return np.flatnonzero(self.request >= 0)


@dataclass(frozen=True)
class Expected:
    """The cache of a step, the attention by the definition in it, and whose key each slot holds.

    `request` and `position` [slots] are -1 where no query of the step may reach.
    """

    cache: reference.Cache
    wanted: reference.Floats
    request: reference.Ints
    position: reference.Ints


def expected(
    query_lens: reference.Ints, seq_lens: reference.Ints, pattern: Pattern, table: reference.Ints, size: int, *,
    group: int, scale: float,
) -> Expected:  # fmt: skip
    """Two KV heads of `group` query heads each. The first has random numbers; the second zero queries and keys.

    With those, each output is the mean of the visible values: multiples of 2^-26, so that sums are exact, and the means
    equal or wrong. Slots that no query of the step may reach hold NaN, the null page too.
    """
    holds, tokens = Held.of(query_lens, seq_lens, pattern, table, size), int(query_lens.sum())
    held = holds.slots
    rng = np.random.default_rng(SEED)
    keys, values = np.full((2, len(holds.request), 2, SIZE), np.nan)
    keys[held, 0], keys[held, 1] = rng.uniform(-4, 4, (len(held), SIZE)), 0
    values[held, 0] = rng.uniform(-1, 1, (len(held), SIZE))
    values[held, 1] = rng.integers(0, 1 << 26, (len(held), SIZE)) / (1 << 26)
    queries = np.zeros((tokens, 2 * group, SIZE))
    queries[:, :group] = rng.uniform(-4, 4, (tokens, group, SIZE))
    cache = reference.Cache(queries, keys, values)
    wanted = reference.attention(cache, query_lens, seq_lens, pattern, table, size, scale)
    return Expected(cache, wanted, holds.request, holds.position)
