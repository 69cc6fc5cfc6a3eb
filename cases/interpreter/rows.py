"""What a kernel call comes down to: some query tokens, the KV slots they may read, and which token sees which."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


class ContractBroken(AssertionError):
    """The metadata says what the kernel's documentation does not allow: what it computes is undefined."""


class TooShort(Exception):
    """A tensor has fewer entries than the kernel reads: an overflow, which the case about that tensor reports."""


class Unknown(Exception):
    """Metadata that none of the contracts here is about, or a wrapper that keeps its tables to itself."""


@dataclass(frozen=True)
class Row:
    """One request of a kernel call.

    tokens [q]: places in the step's query; slots [keys]: places in the KV cache, in the order of the keys;
    visible [q, keys]. `scale` and `group` (query heads per KV head) are what the call was told, None if it takes the
    layer's.
    """

    tokens: Ints
    slots: Ints
    visible: Bools
    scale: float | None = None
    group: int | None = None


def numbers(tensor: Any) -> NDArray[Any]:
    """A copy of a tensor's values: numpy's view of a tensor pins the storage, which changes what vLLM does later."""
    return tensor.detach().clone().cpu().numpy() if hasattr(tensor, "detach") else np.array(tensor)


def slots_of(pages: Ints, length: int, size: int) -> Ints:
    """The slots of a row's keys: key j is entry j % size of its page number j // size."""
    return (pages.astype(np.int64)[:, None] * size + np.arange(size)).reshape(-1)[:length]


def causal(queries: int, keys: int) -> Bools:
    """The causal mask aligned to the end: the last query token sees all keys, the one before it one less.

    Source: FlashAttention's flash_attn_varlen_func ("aligned to the bottom right corner of the attention matrix");
    FlashInfer, trtllm-gen and vLLM's Triton and CPU kernels do the same.
    """
    return np.arange(keys) <= (keys - queries + np.arange(queries))[:, None]


def everything(queries: int, keys: int) -> Bools:
    """No mask."""
    return np.ones((queries, keys), dtype=bool)


def lengths_of(name: str, starts: Ints) -> Ints:
    """Query lengths from cumulative ones, which start at 0 and never fall."""
    lengths = np.diff(starts)
    if starts[0] != 0 or (lengths < 0).any():
        raise ContractBroken(f"{name} does not start at 0 or falls: {starts.tolist()[:8]}")
    return lengths


def tokens_of(first: int, starts: Ints) -> Iterator[Ints]:
    """The query tokens of each row, the first of them at `first`."""
    return (np.arange(first + start, first + end) for start, end in pairwise(starts))
