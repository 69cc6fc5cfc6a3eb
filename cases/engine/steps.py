"""What the engine's scheduler does, step by step, and what a case changes about it: through vLLM's own objects."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from cases.verdicts import Batch


class Steps:
    """The steps of one engine since the last `clear`: their batches, the cuts of prompts, and preemptions.

    It watches: what the scheduler returns goes on to the model runner as it is.
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.clear()
        self._schedule, scheduler.schedule = scheduler.schedule, self._watched
        self._preempt, scheduler._preempt_request = scheduler._preempt_request, self._preempted

    def clear(self) -> None:
        self.batches: list[Batch] = []
        self.prompts: tuple[int, ...] = ()
        """Lengths of the prompts in the last step, in tokens."""
        self.cut_prompts = 0
        """Steps of a prompt that did not reach its end."""
        self.preemptions = 0
        self.drafts = 0
        """Draft tokens scheduled for verification."""
        self.most_blocks = 0
        """KV-cache blocks in use after the step that had the most."""

    def _watched(self, *args: Any, **options: Any) -> Any:
        step = self._schedule(*args, **options)
        computed = {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
        cached = step.scheduled_cached_reqs
        computed |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        if scheduled := step.num_scheduled_tokens:
            ends = {name: computed[name] + tokens for name, tokens in scheduled.items()}
            prompts = {name: self.scheduler.requests[name].num_prompt_tokens for name in scheduled}
            self.batches.append(Batch(tuple(scheduled.values()), tuple(ends.values())))
            self.prompts = tuple(prompts.values())
            self.cut_prompts += sum(ends[name] < prompts[name] for name in scheduled)
            pool = self.scheduler.kv_cache_manager.block_pool
            self.most_blocks = max(self.most_blocks, pool.num_gpu_blocks - 1 - pool.get_num_free_blocks())
            self.drafts += sum(map(len, step.scheduled_spec_decode_tokens.values()))
        return step

    def _preempted(self, *args: Any, **options: Any) -> Any:
        self.preemptions += 1
        return self._preempt(*args, **options)


@contextmanager
def prompts_cut(scheduler: Any, tokens: int) -> Iterator[None]:
    """No step computes more than `tokens`, as if `--max-num-scheduled-tokens` had said so."""
    with mock.patch.object(scheduler, "max_num_scheduled_tokens", tokens):
        yield


@contextmanager
def free_blocks_left(scheduler: Any, blocks: int) -> Iterator[None]:
    """All blocks of the KV cache but `blocks` are somebody else's: as in a smaller cache."""
    pool = scheduler.kv_cache_manager.block_pool
    taken = pool.get_new_blocks(pool.get_num_free_blocks() - blocks)
    try:
        yield
    finally:
        pool.free_blocks(taken)


@contextmanager
def freed_blocks_overwritten(scheduler: Any, kv_caches: list[Any], value: float) -> Iterator[list[int]]:
    """Each block is filled with `value` in all layers as soon as the manager frees it; gives the list of these blocks.

    `kv_caches` are the layers' tensors, pages along their first axis, one or several of them to a block. What was freed
    too soon is then read as `value`, and not as the keys and values that happen to be there still. No request may read
    from the prefix cache meanwhile: there a freed block is still a promise.
    """
    pool, freed = scheduler.kv_cache_manager.block_pool, []
    free = pool.free_blocks

    def overwriting(blocks: Any) -> None:
        blocks = list(blocks)
        free(blocks)
        for block in blocks:
            if block.ref_cnt == 0 and not block.is_null:
                freed.append(block.block_id)
                for cache in kv_caches:
                    pages = len(cache) // pool.num_gpu_blocks
                    cache[block.block_id * pages : (block.block_id + 1) * pages].fill_(value)

    with mock.patch.object(pool, "free_blocks", overwriting):
        yield freed
