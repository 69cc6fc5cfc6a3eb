"""vLLM's scheduler and KV-cache manager, on the cell's groups: no query token may find anything but its own keys."""

import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from cases import kv_lives, reference, vllm_api
from cases.cell import Cell
from cases.kv_lives import Shape
from cases.kv_worker import Life, Seen, play
from cases.patterns import Full
from cases.verdicts import Batch
from cases.vllm_api import kv_cache

pytestmark = [
    pytest.mark.cell(backend=["flash_attn"], arch=["sm90"]),
    pytest.mark.release(kv_cache.KNOWN, "how to drive its scheduler was not looked at"),
]
"""Neither the scheduler nor the manager asks for either: one of each stands for all."""

LOOKS = 4
"""Steps of a play in which the keys are also looked up through vLLM's rows."""


@pytest.mark.kind("KV-cache manager")
def test_each_query_token_finds_its_own_keys(
    cell: Cell, deployment: vllm_api.Deployment, pytestconfig: pytest.Config
) -> None:
    """Over whole lives: rejected drafts at chunk borders, prefix-cache hits, preemption, blocks that change hands."""
    makers = [kv_lives.with_common_prefixes, kv_lives.crowded]
    if cell.hybrid:  # only then are blocks freed before a request ends
        makers += [kv_lives.at_borders, kv_lives.at_random]
    for make in makers:
        _judge(cell, deployment, make, pytestconfig.getoption("--seed"), overlapped=False)


@pytest.mark.cell(hybrid=["on"])
@pytest.mark.kind("KV-cache manager")
def test_overlapped_steps_find_their_own_keys(
    cell: Cell, deployment: vllm_api.Deployment, pytestconfig: pytest.Config
) -> None:
    """The same where a step is scheduled before the last one's tokens are known, as a GPU deployment does by default.

    The scheduler takes drafts for right that are then rejected, and must not free by that.
    """
    for make in (kv_lives.at_borders, kv_lives.crowded):
        _judge(cell, deployment, make, pytestconfig.getoption("--seed"), overlapped=True)


def _judge(
    cell: Cell,
    deployment: vllm_api.Deployment,
    make: Callable[[Shape, int], list[Life]],
    seed: int,
    *,
    overlapped: bool,
) -> None:
    load, seed = cell.load, zlib.crc32(f"{seed} {cell.id}".encode())
    shape = kv_lives.shape(cell.chunk, load.block_size, load.max_model_len, cell.spec_k)
    lives, groups = make(shape, seed), len(deployment.groups)
    requests = min(load.max_num_seqs, len(lives), 4)
    scheduler = kv_cache.Scheduling(
        deployment,
        requests=requests,
        tokens=min(load.max_num_batched_tokens, cell.chunk // 2 + load.block_size + 5),  # a prompt takes some steps
        blocks=kv_lives.blocks(lives, shape, groups, requests if make is kv_lives.crowded else 1),
        overlapped=overlapped,
    )
    assert groups == (2 if cell.hybrid else 1), f"{groups} groups of layers"
    faults = list(play(scheduler, lives, overlapped=overlapped, onlooker=_through_rows(deployment, scheduler)))
    assert not faults, f"{make.__name__}, seed {seed}: " + "; ".join(faults)


def _through_rows(deployment: vllm_api.Deployment, scheduler: kv_cache.Scheduling) -> Callable[[Seen], Iterator[str]]:
    """Looks up the chunked layers' keys as a kernel does: through vLLM's rows of the scheduler's own block tables."""
    pattern, size, looks = deployment.pattern, deployment.spec.block_size, iter(range(LOOKS))
    group = next((g for g, of in enumerate(scheduler.groups) if of.pattern != Full()), 0)

    def look(seen: Seen) -> Iterator[str]:
        lens = np.array(seen.query_lens), np.array(seen.seq_lens)
        rows = reference.rows(*lens, pattern)
        if len(rows.request) == len(seen.query_lens) or next(looks, None) is None:
            return  # no chunk border cuts a query
        batch = Batch(seen.query_lens, seen.seq_lens)
        key_lens, tables = kv_cache.rows(deployment, batch, [tables[group].tolist() for tables in seen.tables])
        if key_lens.tolist() != rows.key_lens.tolist():
            yield f"rows of {key_lens.tolist()} keys, by definition {rows.key_lens.tolist()}"
            return
        for row, (request, first, count) in enumerate(zip(rows.request, rows.first, rows.key_lens, strict=True)):
            there = seen.shadow.at(group, reference.slots(tables[row], np.arange(count), size))
            if (there != seen.prints[request][first : first + count]).any():
                yield f"row {row} of {batch} leads to keys that are not its own"

    return look
