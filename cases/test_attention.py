"""Attention in float64 from what a builder hands to its kernels, against chunked local attention by its definition."""

from typing import Any

import numpy as np
import pytest

from cases import attention_inputs, batches, extents, interpreter, reference
from cases.cell import Cell, Load
from cases.verdicts import Batch

TOLERANCE = 1e-12
"""Both sides compute in float64 what is below 1."""


@pytest.mark.kind("attention")
def test_attention_is_that_of_the_definition(cell: Cell, auditor: extents.Auditor) -> None:
    """The largest error over query tokens and heads, on random inputs and on such that tell sets of keys apart.

    A batch that overruns a buffer is another case's to report.
    """
    judged = 0
    for named in batches.few_tokens(cell.load, cell.spec_k, cell.pattern):
        built = auditor.build(named.batch, shared_prefix=_pages(named.batch, cell.load) > _room(auditor))
        if built.metadata is None or built.overflows:
            continue
        try:
            rows = interpreter.rows(built.metadata, auditor.deployment.spec.block_size)
        except interpreter.TooShort:
            continue
        if wrong := _wrong(rows, named.batch, built.step, auditor):
            raise AssertionError(f"{named.name}: {wrong}; batch: {named.batch}; seed {attention_inputs.SEED}")
        judged += 1
    assert judged, "no batch could be judged"


def _wrong(rows: list[interpreter.Row], batch: Batch, step: Any, auditor: extents.Auditor) -> str:
    """The query token and head with the largest error, in words; none if there is none to speak of."""
    load = auditor.cell.load
    scale = load.head_size**-0.5
    query_lens, seq_lens = np.array(batch.query_lens), np.array(batch.seq_lens)
    right = attention_inputs.expected(
        query_lens, seq_lens, auditor.deployment.pattern, extents.read(step.block_table_tensor).astype(np.int64),
        auditor.deployment.spec.block_size, group=load.num_heads // load.num_kv_heads, scale=scale,
    )  # fmt: skip
    found = interpreter.attention(rows, right.cache.queries, right.cache.keys, right.cache.values, scale)
    error = np.abs(found - right.wanted).max(axis=2)
    error = np.where(np.isnan(error), np.inf, error)
    if error.max() <= TOLERANCE:
        return ""
    token, head = (int(i) for i in np.unravel_index(error.argmax(), error.shape))
    local = reference.reach(query_lens, seq_lens, auditor.deployment.pattern)
    request, first = int(local.request[token]), int(local.first[token])
    last = first + int(local.count[token]) - 1
    return (
        f"query token {token} (request {request}, position {last}), head {head}: "
        f"error {error[token, head]:.3g}, sees {_seen(rows, token, right, request, first, last)}"
    )


def _seen(
    rows: list[interpreter.Row], token: int, right: attention_inputs.Expected, request: int, first: int, last: int
) -> str:
    """What of the keys first..last of its request a query token misses, and what it sees besides them."""
    mine = [row.slots[row.visible[row.tokens == token].any(axis=0)] for row in rows if token in row.tokens]
    if not mine:
        return "nothing: no kernel computes it"
    slots = np.concatenate(mine)
    known = slots[(slots >= 0) & (slots < len(right.request))]
    of_mine = right.position[known[right.request[known] == request]]
    missed = np.setdiff1d(np.arange(first, last + 1), of_mine)
    besides = [f"key {p}" for p in of_mine[(of_mine < first) | (of_mine > last)].tolist()]
    besides += [
        f"slot {s}, "
        + (f"key {right.position[s]} of request {right.request[s]}" if r >= 0 else "which nobody may read")
        for s, r in zip(known.tolist(), right.request[known].tolist(), strict=True)
        if r != request
    ]
    besides += ["a slot outside the cache"] * (len(known) < len(slots))
    besides += ["a key twice"] * (len(np.unique(slots)) < len(slots))
    if not len(missed) and not besides:
        return "its keys: the weights or the heads are wrong"
    found = [f"not {len(missed)} of its keys, the first {missed[0]}"] if len(missed) else []
    found += [f"besides its keys {len(besides)}, the first {besides[0]}"] if besides else []
    return ", and ".join(found)


def _pages(batch: Batch, load: Load) -> int:
    """Pages of the batch if no request shares any."""
    return sum(-(-s // load.block_size) for s in batch.seq_lens)


def _room(auditor: extents.Auditor) -> int:
    """Pages of the cache, but for the null page."""
    return int(auditor.deployment.config.cache_config.num_gpu_blocks) - 1
