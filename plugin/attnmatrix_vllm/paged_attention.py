"""Attention over a paged KV cache in float64: what all models of attention kernels here compute.

Source: softmax(scale q k^T) v (Vaswani et al., 2017, eq. 1), grouped-query heads (Ainslie et al., 2023), soft cap
c tanh(x / c) of the scaled scores (Gemma 2), sinks as one more logit per head in the denominator (FlashInfer).
Not modelled, for any kernel: the order of sums, rounding of scores and weights to the input's dtype, splits of the keys
over thread blocks. A kernel's output is rounded once, when written.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from attnmatrix_vllm.contracts import FLOATS, FP8, read, require

ALIGNMENT = 16
"""Bytes: what TMA asks of all strides but the last."""


@dataclass(frozen=True)
class Row:
    """One row of a call: its query tokens, the pages of its keys in order, how many keys, and who sees which.

    `visible` is [tokens, keys]. Unknown tokens (in `unknown` [tokens]) depend on what a kernel reads past an end.
    """

    tokens: slice
    pages: torch.Tensor
    keys: int
    visible: torch.Tensor
    unknown: torch.Tensor | None = None


@dataclass(frozen=True)
class Softmax:
    """What a call says about scores and sums. Factors of one number, or of one per row and KV head [rows, KV heads]."""

    scale: float
    soft_cap: float = 0.0
    sinks: torch.Tensor | None = None
    key_factor: torch.Tensor | float = 1.0
    value_factor: torch.Tensor | float = 1.0


@dataclass(frozen=True)
class Cache:
    """Keys and values of a call: [pages, tokens of a page, KV heads, head size] each, of the same strides."""

    keys: torch.Tensor
    values: torch.Tensor

    @classmethod
    def of(cls, pair: object, layout: str, query: torch.Tensor, *, aligned: bool = False) -> "Cache":
        """The cache that a kernel is given as a pair of tensors in layout NHD or HND.

        ContractBroken unless both are of the same shape, dtype and strides (kernels take those of the keys for both),
        their last dimension lies together, and heads and head size go with the query's.
        """
        require(layout in ("NHD", "HND"), f"kv_layout is {layout!r}, documented are NHD and HND")
        require(isinstance(pair, tuple) and len(pair) == 2, "only a pair of key and value cache is modelled")
        keys, values = pair  # type: ignore[misc]
        require(keys.dim() == 4 and keys.shape == values.shape, f"caches are {keys.shape} and {values.shape}")
        require(keys.dtype == values.dtype, f"caches are of {keys.dtype} and {values.dtype}")
        require(keys.stride() == values.stride(), f"caches have strides {keys.stride()} and {values.stride()}")
        require(keys.dtype in (*FLOATS, *FP8), f"a cache of {keys.dtype} is not modelled")
        require(keys.dtype in (query.dtype, *FP8), f"keys are {keys.dtype}, queries {query.dtype}")
        require(keys.stride(3) == 1, f"the head dimension of the cache has stride {keys.stride(3)}")
        if aligned:
            bytes_ = [stride * keys.element_size() for stride in keys.stride()[:3]]
            require(all(b % ALIGNMENT == 0 for b in bytes_), f"strides of {bytes_} bytes are no multiples of 16")
        cache = cls(*(t.transpose(1, 2) if layout == "HND" else t for t in (keys, values)))
        require(
            query.shape[2] == keys.shape[3], f"heads of the cache have {keys.shape[3]} numbers, {query.shape[2]} asked"
        )
        require(query.shape[1] % cache.heads == 0, f"{query.shape[1]} query heads for {cache.heads} KV heads")
        return cache

    @property
    def page_size(self) -> int:
        return self.keys.shape[1]

    @property
    def heads(self) -> int:
        return self.keys.shape[2]


def causal(queries: int, keys: int, window_left: int = -1, window_right: int = 0) -> torch.Tensor:
    """Who sees whom if the last query token sees all keys and each one before it one less. Shape [queries, keys].

    The query token of position p sees keys p - window_left to p + window_right; negative means no bound.
    """
    position, key = (keys - queries + torch.arange(queries))[:, None], torch.arange(keys)
    seen = torch.ones((queries, keys), dtype=torch.bool)
    if window_right >= 0:
        seen &= key <= position + window_right
    if window_left >= 0:
        seen &= key >= position - window_left
    return seen


def pages_of(name: str, table: torch.Tensor, row: int, keys: int, page_size: int) -> torch.Tensor:
    """The pages of the first `keys` keys of a row of a block table; -1 for those past its end."""
    count = -(-keys // page_size)
    read(name, count, table.shape[1])
    pages = torch.full((count,), -1, dtype=torch.int64)
    pages[: table.shape[1]] = found = table[row, :count].long()
    require(bool((found >= 0).all()), f"{name} has page {int(found.min())} in row {row}" if count else "")
    return pages


def attention(query: torch.Tensor, cache: Cache, rows: Iterable[Row], softmax: Softmax) -> torch.Tensor:
    """The output of each query token and head, in float64 and of the query's shape.

    A token that no row computes is NaN, one that sees a NaN or that is unknown too; one that sees nothing is 0.
    """
    out = torch.full(query.shape, torch.nan, dtype=torch.float64)
    for nth, row in enumerate(rows):
        keys, values = (_gathered(tensor, row) for tensor in (cache.keys, cache.values))
        poisoned = keys.isnan().any(2).any(1) | values.isnan().any(2).any(1)
        keys, values = (torch.where(poisoned[:, None, None], 0.0, tensor) for tensor in (keys, values))
        q = query[row.tokens].double().unflatten(1, (cache.heads, -1))
        score = torch.einsum("qhgd,khd->hgqk", q, keys) * softmax.scale * _of(softmax.key_factor, nth)
        if softmax.soft_cap > 0:
            score = softmax.soft_cap * torch.tanh(score / softmax.soft_cap)
        weight = _weights(score.masked_fill(~row.visible, -torch.inf), softmax.sinks)
        seen = torch.einsum("hgqk,khd->qhgd", weight, values) * _of(softmax.value_factor, nth, last=True)
        seen[(row.visible & poisoned).any(1)] = torch.nan
        if row.unknown is not None:
            seen[row.unknown] = torch.nan
        out[row.tokens] = seen.flatten(1, 2)
    return out


def write(out: torch.Tensor, found: torch.Tensor) -> None:
    """Round the result to the output's dtype, once. FP8 saturates, as CUDA's conversions do."""
    if out.dtype in FP8:
        most = torch.finfo(out.dtype).max
        found = found.clamp(-most, most)
    out.copy_(found.to(out.dtype))


def _weights(score: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Softmax over the last dimension of [KV heads, group, q, keys]; all zero where nothing is seen and no sink is."""
    if sinks is not None:
        sink = sinks.double().view(*score.shape[:2], 1, 1).expand(*score.shape[:3], 1)
        score = torch.cat([score, sink], dim=3)
    weight = torch.exp(score - score.amax(3, keepdim=True).clamp(min=-1e300)) if score.shape[3] else score
    weight = weight / weight.sum(3, keepdim=True).clamp(min=1e-300)
    return weight if sinks is None else weight[..., :-1]


def _of(factor: torch.Tensor | float, row: int, *, last: bool = False) -> torch.Tensor | float:
    """The factor of a row, to be multiplied with [KV heads, group, q, keys], or with [q, KV heads, group, size]."""
    if not torch.is_tensor(factor):
        return factor
    return factor[row].double().view(*((1, -1, 1, 1) if last else (-1, 1, 1, 1)))


def _gathered(cache: torch.Tensor, row: Row) -> torch.Tensor:
    """The keys or values of a row [keys, KV heads, size], in float64; NaN for pages that the cache does not have."""
    pages, count = row.pages, cache.shape[0]
    if len(pages):
        read("kv_cache", int(pages.max()) + 1, count)
    lost = (pages < 0) | (pages >= count)
    found = cache[torch.where(lost, 0, pages)].double()
    found[lost] = torch.nan
    return found.flatten(0, 1)[: row.keys]
