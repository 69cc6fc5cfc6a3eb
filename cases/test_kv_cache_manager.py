"""vLLM's scheduler and KV-cache manager, on the cell's own groups: no query token may find anything but its own keys."""

import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from cases import kv_lives, vllm_api
from cases.cell import Cell
from cases.kv_lives import Shape
from cases.kv_worker import Life, Seen, play
from cases.vllm_api import kv_cache

pytestmark = pytest.mark.cell(backend=["flash_attn"], arch=["sm90"])
"""Neither the scheduler nor the manager asks for either: one of each stands for all."""


@pytest.mark.parametrize("overlapped", [False, True], ids=["in_turn", "overlapped"])
def test_each_query_token_finds_its_own_keys(cell: Cell, deployment: vllm_api.Deployment, overlapped: bool) -> None:
    """Over whole lives of requests: rejected drafts at chunk borders, prefix-cache hits, preemption, reuse of blocks.

    `overlapped` is how a GPU deployment schedules by default: a step before the last one's tokens are known.
    """
    if overlapped and cell.spec_k and not kv_cache.overlaps_drafts():
        pytest.skip("this release does not overlap steps with drafts under the hybrid manager")
    shape, seed = _shape(cell), zlib.crc32(cell.id.encode())
    for make in (kv_lives.at_borders, kv_lives.with_common_prefixes, kv_lives.at_random):
        lives = make(shape, seed)
        scheduler = _scheduling(deployment, shape, lives, overlapped)
        assert len(scheduler.groups) == (2 if cell.hybrid else 1), f"{len(scheduler.groups)} groups of layers"
        faults = list(play(scheduler, lives, overlapped=overlapped, onlooker=_through_rows(deployment, scheduler)))
        assert not faults, f"{make.__name__}, seed {seed}: " + "; ".join(faults)


def _shape(cell: Cell) -> Shape:
    return Shape(
        cell.chunk,
        cell.load.block_size,
        min(cell.load.max_model_len, 2 * cell.chunk + 5 * cell.load.block_size),
        cell.spec_k,
    )


def _scheduling(
    deployment: vllm_api.Deployment, shape: Shape, lives: list[Life], overlapped: bool
) -> kv_cache.Scheduling:
    load = deployment.cell.load
    longest = max(len(life.text) for life in lives)
    pages = -(-longest // shape.page) * len(deployment.groups)
    return kv_cache.Scheduling(
        deployment,
        requests=min(load.max_num_seqs, 4),
        tokens=min(load.max_num_batched_tokens, shape.chunk + shape.chunk // 2 + 3),
        blocks=1 + pages + pages // 3,
        overlapped=overlapped,
    )


def _through_rows(
    deployment: vllm_api.Deployment, scheduler: kv_cache.Scheduling
) -> Callable[[Seen], Iterator[str]] | None:
    return None
