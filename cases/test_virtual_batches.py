"""vLLM's split of a step into virtual batches, against chunked local attention by its definition."""

import numpy as np
import pytest

from cases import batches, extents, reference, vllm_api
from cases.cell import Cell


@pytest.mark.kind("split")
def test_each_query_token_reaches_exactly_its_chunk(cell: Cell, deployment: vllm_api.Deployment) -> None:
    """The physical KV slots that each query token reads, through the virtual block table, are its chunk's up to it."""
    load = batches.few_requests(cell.load)
    of_the_cell = load, cell.spec_k, cell.pattern
    for named in batches.within_capacity(*of_the_cell) + batches.worst(*of_the_cell):
        assert_split(deployment, named)


def assert_split(deployment: vllm_api.Deployment, named: batches.Named) -> None:
    """vLLM's rows of one batch, token by token and key by key."""
    step = vllm_api.step(deployment, named.batch)
    local = vllm_api.split(deployment, step)
    size = deployment.spec.block_size
    query_lens, seq_lens = np.array(named.batch.query_lens), np.array(named.batch.seq_lens)
    wanted = reference.reach(query_lens, seq_lens, deployment.pattern)
    table = extents.read(step.block_table_tensor).astype(np.int64)
    local_table = extents.read(local.block_table_tensor).astype(np.int64)

    starts = extents.read(local.query_start_loc_cpu).astype(np.int64)
    keys = extents.read(local.seq_lens).astype(np.int64)
    tokens = np.diff(starts)
    assert (tokens > 0).all(), f"{named.name}: a virtual batch without a query token"
    assert starts[-1] == query_lens.sum(), f"{named.name}: {starts[-1]} of {query_lens.sum()} query tokens are left"
    # The kernels' causal mask is aligned to the end: the last query token of a row sees all its keys.
    row = np.repeat(np.arange(len(tokens)), tokens)
    count = keys[row] - (starts[row + 1] - 1 - np.arange(starts[-1]))
    wrong = np.flatnonzero(count != wanted.count)
    assert not len(wrong), (
        f"{named.name}: query token {wrong[0]} sees {count[wrong[0]]} keys, by definition {wanted.count[wrong[0]]}"
    )
    last = starts[1:] - 1
    request, first = wanted.request[last], wanted.first[last]
    mixed = np.flatnonzero((wanted.request != request[row]) | (wanted.first != first[row]))
    assert not len(mixed), f"{named.name}: row {row[mixed[0]]} mixes requests or chunks"
    # Row by row, key by key: the slot that the virtual block table leads to, and the one that holds the key.
    key = np.arange(keys.max())
    exists = key < keys[:, None]
    there = reference.slots(local_table, key, size)
    by_definition = np.stack([reference.slots(table[r], f + key, size) for r, f in zip(request, first, strict=True)])
    off = np.argwhere(exists & (there != by_definition))
    assert not len(off), (
        f"{named.name}: row {off[0][0]} reads slot {there[tuple(off[0])]} for key {off[0][1]} of its chunk, "
        f"which is in slot {by_definition[tuple(off[0])]}"
    )
