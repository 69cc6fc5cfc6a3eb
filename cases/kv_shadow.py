"""A shadow of the KV cache: which key each slot holds, so that a read through a block table can be judged.

A slot holds the key of one position of one text, computed from the tokens up to it. Its print is a number that stands
for those tokens: two texts with a common beginning have equal prints as far as they agree, and (but for chance, 2**-64)
no further. Whatever a scheduler does with blocks, a query token must find the prints of its own text at all positions
that it attends to. Nothing here asks the scheduler who owns a block.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cases.patterns import Full, Pattern

Ints = NDArray[np.int64]
Prints = NDArray[np.uint64]


@dataclass(frozen=True)
class Group:
    """Layers that share a block table; `pattern` is that of the layer that sees most. Sizes in tokens."""

    pattern: Pattern
    block_size: int

    def first(self, start: int, tokens: int) -> int:
        """The first position that query tokens at `start` and after it attend to, by the definition."""
        return int(self.pattern.first(np.arange(start, start + tokens)).min())

    def pages(self, first: int, end: int) -> slice:
        """The columns of the block table for positions [first, end)."""
        return slice(first // self.block_size, -(-end // self.block_size))


def prints(tokens: Ints) -> Prints:
    """The print of each position of a text: a sum over the tokens up to it, each with a weight of its place."""
    weights = np.random.default_rng(0).integers(1, 1 << 63, len(tokens), dtype=np.uint64) * np.uint64(2)
    found: Prints = np.cumsum((tokens.astype(np.uint64) + np.uint64(1)) * (weights + np.uint64(1)), dtype=np.uint64)
    return found


class Shadow:
    """What is in each slot. The groups' layers take turns in the same blocks, as in vLLM's pool."""

    def __init__(self, groups: Sequence[Group], blocks: int) -> None:
        (size,) = {group.block_size for group in groups}
        self._held = np.zeros((blocks, size), np.uint64)
        self._salt = np.arange(1, len(groups) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)

    def write(self, group: int, pages: Ints, offset: int, keys: Prints) -> None:
        """Keys of consecutive positions into consecutive slots of pages, from `offset` tokens into the first."""
        size = self._held.shape[1]
        at = offset + np.arange(len(keys))
        self._held[pages[at // size], at % size] = keys ^ self._salt[group]

    def read(self, group: int, pages: Ints, offset: int, count: int) -> Prints:
        """The prints in consecutive slots of pages."""
        found: Prints = self._held[pages].reshape(-1)[offset : offset + count] ^ self._salt[group]
        return found

    def at(self, group: int, slots: Ints) -> Prints:
        """The prints in these slots."""
        found: Prints = self._held.reshape(-1)[slots] ^ self._salt[group]
        return found


def longest_hit(groups: Sequence[Group], cached: Sequence[NDArray[np.bool_]], tokens: int) -> int:
    """The longest prefix that a request of so many tokens may take as computed, by the definition.

    `cached`: for each group, which pages of the prefix can still be found. A prefix is whole pages, and at least the
    last token is computed again, for its logits. The next token must find every page of what it attends to; pages
    before its chunk it does not need (https://github.com/vllm-project/vllm/pull/19351).
    """
    size = groups[0].block_size
    whole = [pages for group, pages in zip(groups, cached, strict=True) if group.pattern == Full()]
    most = min(int(np.append(pages, False).argmin()) for pages in whole)  # these layers need all pages of a hit
    for hit in range(min((tokens - 1) // size, most) * size, 0, -size):
        if all(pages[group.pages(group.first(hit, 1), hit)].all() for group, pages in zip(groups, cached, strict=True)):
            return hit
    return 0
