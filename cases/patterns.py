"""What a token may see of its sequence, and where that cuts a step.

The one seam between the definition of a kind of layer and what is asked of builders: references, needs, bounds and
batches take a `Pattern`, and each layer of a model has its own. Positions count from 0; lengths are in tokens.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Pattern(Protocol):
    """A kind of attention layer, causal: a token sees a run of keys that ends with its own."""

    def first(self, positions: Ints) -> Ints:
        """The first key that the token at each position sees, and so the first that must be in the cache for it."""

    def start(self, positions: Ints) -> Ints:
        """The first key of the row that the token at each position is part of.

        A builder makes one row of the query tokens of a request that have the same.
        """

    def border(self, longest: int) -> int:
        """Tokens from one place where a row may end to the next, in sequences of `longest`; so many where none may."""

    def place(self, position: int) -> str:
        """Where a token stands, in words."""


@dataclass(frozen=True)
class Chunked:
    """Chunked local attention (Llama 4): a token sees the tokens of its own chunk of `chunk` tokens, up to itself.

    The query token at i attends to the key at j if and only if j <= i and i // chunk == j // chunk.
    """

    chunk: int

    def first(self, positions: Ints) -> Ints:
        return positions // self.chunk * self.chunk

    def start(self, positions: Ints) -> Ints:
        return self.first(positions)

    def border(self, longest: int) -> int:  # noqa: ARG002 - the same whatever the longest
        return self.chunk

    def place(self, position: int) -> str:
        return f"place {position % self.chunk} of its chunk"

    def __str__(self) -> str:
        return f"chunks of {self.chunk} tokens"


@dataclass(frozen=True)
class Full:
    """Causal attention over the whole sequence: a global layer, or a draft model's."""

    def first(self, positions: Ints) -> Ints:
        return np.zeros_like(positions)

    def start(self, positions: Ints) -> Ints:
        return np.zeros_like(positions)

    def border(self, longest: int) -> int:
        return max(longest, 1)

    def place(self, position: int) -> str:
        return f"place {position} of its sequence"

    def __str__(self) -> str:
        return "the whole sequence"
