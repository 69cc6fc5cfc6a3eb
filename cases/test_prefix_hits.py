"""How much of a prompt vLLM's KV-cache manager finds again, against the definition."""

from collections.abc import Iterator

import numpy as np
import pytest

from cases import kv_lives, kv_shadow, vllm_api
from cases.cell import Cell
from cases.kv_worker import Seen, play
from cases.patterns import Full
from cases.vllm_api import kv_cache

pytestmark = [
    pytest.mark.cell(backend=["flash_attn"], arch=["sm90"]),
    pytest.mark.release(kv_cache.KNOWN, "how to drive its scheduler was not looked at"),
]
"""The manager asks for neither: one of each stands for all."""


@pytest.mark.kind("prefix hits")
def test_prefix_hits_are_as_long_as_the_definition_allows(cell: Cell, deployment: vllm_api.Deployment) -> None:
    """A prompt computed before is found again, up to the first page that its next token needs and that has gone.

    Chunked layers need no page before the next token's chunk (https://github.com/vllm-project/vllm/pull/19351), and a
    page that was freed when its chunk ended can still be found (https://github.com/vllm-project/vllm/pull/25431). EAGLE
    gives up one page of a hit, and only one (https://github.com/vllm-project/vllm/issues/32802).
    """
    shape = kv_lives.shape(cell.chunk, cell.load.block_size, cell.load.max_model_len, cell.spec_k)
    life, page, chunk = kv_lives.alone(shape, 0), shape.page, shape.chunk
    scheduler = kv_cache.Scheduling(
        deployment,
        requests=1,
        tokens=min(cell.load.max_num_batched_tokens, chunk // 2 + page + 5),
        blocks=kv_lives.blocks([life], shape, len(deployment.groups), 1),
        overlapped=False,
    )
    tables: list[kv_shadow.Ints] = []

    def remember(seen: Seen) -> Iterator[str]:
        tables[:] = seen.tables[0]
        yield from ()

    faults = list(play(scheduler, [life], overlapped=False, onlooker=remember))
    assert not faults, faults
    cached = [np.arange(shape.length // page + 1) < life.prompt // page for _ in tables]
    borders = (0, page, chunk, chunk + page) + ((chunk - page, 2 * chunk) if shape.chunk <= 64 * page else ())
    ends = [n for border in borders for n in (border, border + 1, border + 2) if 0 < n <= life.prompt]
    asking = {n: scheduler.asking(life.text[:n].tolist()) for n in ends}
    # Pages forgotten one after another, those that fewest prompts need first: of chunked layers or not, which page.
    for chunked, column in [(None, 0), (True, chunk // page), (True, chunk // page - 1), (True, 0), (False, 1)]:
        for g, group in enumerate(scheduler.groups):
            if (group.pattern != Full()) == chunked and cached[g][column]:
                scheduler.evict(int(tables[g][column]))
                cached[g][column] = False
        for tokens, request in asking.items():
            hit = scheduler.hit(request)
            wanted = max(0, kv_shadow.longest_hit(scheduler.groups, cached, tokens) - scheduler.gives_up() * page)
            missing = [np.flatnonzero(~pages[: life.prompt // page]).tolist() for pages in cached]
            assert hit == wanted, (
                f"a prompt of {tokens} tokens hits {hit}, by definition {wanted}; pages forgotten, by group: {missing}"
            )
