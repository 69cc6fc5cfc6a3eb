"""vLLM's scheduler and KV-cache manager for a cell: the real ones, on the cell's own groups, with a pool we size.

The scheduler decides what a step computes and which blocks it may use; a worker learns both from its output and keeps
the block tables by it. Serves 0.10.1 - 0.33.0: arguments that a release does not know are left out.
"""

import copy
import inspect
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from cases import command_line, vllm_api
from cases.handed import COUNT, OBJECT, Contract, handed, having, tables_of
from cases.kv_shadow import Group, Ints
from cases.kv_worker import Scheduled
from cases.patterns import Full
from cases.verdicts import Batch

OUTPUT = having(
    num_scheduled_tokens=Contract("a count by request", lambda found: isinstance(found, dict)),
    scheduled_new_reqs=Contract("a list", lambda found: isinstance(found, list)),
    scheduled_cached_reqs=OBJECT,
    scheduled_spec_decode_tokens=Contract("tokens by request", lambda found: isinstance(found, dict)),
)
KNOWN = vllm_api.VERSION >= (0, 22, 0)
"""Whether this way to drive a scheduler was looked at in the release: before, what it shows may be of our making."""


class Scheduling:
    """One scheduler and its pool of `blocks`. `overlapped`: a step is scheduled before the last one has reported."""

    def __init__(
        self, deployment: vllm_api.Deployment, *, requests: int, tokens: int, blocks: int, overlapped: bool
    ) -> None:
        config = copy.copy(deployment.config)
        config.scheduler_config = copy.copy(config.scheduler_config)
        config.cache_config = copy.copy(config.cache_config)
        config.scheduler_config.max_num_seqs = requests
        config.scheduler_config.max_num_batched_tokens = tokens
        config.scheduler_config.max_num_scheduled_tokens = None
        config.scheduler_config.async_scheduling = overlapped
        config.cache_config.num_gpu_blocks = blocks
        config.cache_config.enable_prefix_caching = True
        sizes = [group.kv_cache_spec.block_size for group in deployment.groups]
        kv_cache_utils.init_none_hash(_hash)
        self._hasher = kv_cache_utils.get_request_block_hasher(sizes[0], _hash)
        self._scheduler: Any = (AsyncScheduler if overlapped else Scheduler)(
            **_known(
                Scheduler.__init__,
                vllm_config=config,
                kv_cache_config=KVCacheConfig(
                    num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=deployment.groups
                ),
                structured_output_manager=StructuredOutputManager(config),
                block_size=sizes[0],
            )
        )
        self._unreported: deque[Any] = deque()
        self._overlapped = overlapped
        self.blocks = blocks
        self.groups = tuple(
            Group(deployment.cell.pattern if _all_local(group.layer_names) else Full(), size)
            for group, size in zip(deployment.groups, sizes, strict=True)
        )

    def submit(self, name: str, prompt: Sequence[int], outputs: int) -> None:
        """A request that stops after so many tokens of output."""
        self._scheduler.add_request(self._request(name, prompt, outputs))

    def schedule(self) -> list[Scheduled]:
        """The next step, as its output tells a worker; empty if there is nothing to compute."""
        output = handed("the scheduler's output", self._scheduler.schedule(), OUTPUT, type(self._scheduler).schedule)
        if output.num_scheduled_tokens:
            self._unreported.append(output)
        cached = output.scheduled_cached_reqs
        tables: dict[str, tuple[int, Any, bool]] = {
            new.req_id: (new.num_computed_tokens, new.block_ids, True) for new in output.scheduled_new_reqs
        }
        resumed = getattr(cached, "resumed_req_ids", None)
        if resumed is None:  # until 0.11.0: a flag for each
            resumed = {name for name, flag in zip(cached.req_ids, cached.resumed_from_preemption, strict=True) if flag}
        for name, computed, ids in zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True):
            tables[name] = (computed, ids or ([],) * len(self.groups), name in resumed)
        for name in output.num_scheduled_tokens:
            about = tables.get(name, (None, None))
            handed(f"of request {name} the computed tokens", about[0], COUNT, type(self._scheduler).schedule)
            handed(
                f"of request {name} the blocks", about[1], tables_of(len(self.groups)), type(self._scheduler).schedule
            )
        drafts = output.scheduled_spec_decode_tokens
        return [
            Scheduled(
                name, tables[name][0], tokens, len(drafts.get(name, ())), tuple(map(list, tables[name][1])),
                anew=tables[name][2],
            )
            for name, tokens in output.num_scheduled_tokens.items()
        ]  # fmt: skip

    def report(self, sampled: Mapping[str, list[int]], drafts: Mapping[str, list[int]]) -> None:
        """What a worker made of the oldest step: the tokens sampled for each request, and drafts for its next step."""
        output = self._unreported.popleft()
        names = list(output.num_scheduled_tokens)
        about: dict[str, Any] = {
            "req_ids": names,
            "req_id_to_index": {name: i for i, name in enumerate(names)},
            "sampled_token_ids": [list(sampled[name]) for name in names],
            "spec_token_ids": [list(drafts.get(name, ())) for name in names],  # until 0.10.1
            "logprobs": None,
            "prompt_logprobs_dict": {},
            "pooler_output": [],
        }
        known = {field.name: str(field.type) for field in fields(ModelRunnerOutput)}
        if "ndarray" in known["sampled_token_ids"]:  # in 0.11.1 and 0.11.2
            about["sampled_token_ids"] = [np.array(tokens) for tokens in about["sampled_token_ids"]]
        self._scheduler.update_from_output(
            output, ModelRunnerOutput(**{name: value for name, value in about.items() if name in known})
        )
        if not self._overlapped and "spec_token_ids" not in known:  # overlapped: the drafts stay with the worker
            from vllm.v1.outputs import DraftTokenIds

            of = [name for name in names if drafts.get(name)]
            self._scheduler.update_draft_token_ids(DraftTokenIds(of, [list(drafts[name]) for name in of]))

    def table(self, name: str) -> tuple[list[int], ...]:
        """The manager's own view of a request's blocks in each group; empty if it holds none."""
        ask = self._scheduler.kv_cache_manager.get_block_ids
        found: tuple[list[int], ...] = handed("the blocks of a request", ask(name), tables_of(len(self.groups)), ask)
        return found

    def free(self) -> int:
        """Blocks that nobody holds."""
        ask = self._scheduler.kv_cache_manager.block_pool.get_num_free_blocks
        return int(handed("the number of free blocks", ask(), COUNT, ask))

    def asking(self, prompt: Sequence[int]) -> Any:
        """A request that only asks, with the hashes of its prompt."""
        return self._request("asking", prompt, 1)

    def hit(self, asking: Any) -> int:
        """Tokens that such a request would find in the prefix cache."""
        ask = self._scheduler.kv_cache_manager.get_computed_blocks
        pair = Contract("blocks and a count", lambda found: isinstance(found, tuple) and COUNT.holds(found[1]))
        return int(handed("a hit of the prefix cache", ask(asking), pair, ask)[1])

    def evict(self, block: int) -> None:
        """Let the prefix cache forget a block, as it does when it gives it away."""
        pool = self._scheduler.kv_cache_manager.block_pool
        pool._maybe_evict_cached_block(pool.blocks[block])

    def gives_up(self) -> int:
        """Pages at the end of a hit that are computed again all the same: EAGLE needs the hidden states of one."""
        return int(getattr(self._scheduler, "use_eagle", False))

    def _request(self, name: str, prompt: Sequence[int], outputs: int) -> Any:
        about = {"eos_token_id": None, "multi_modal_kwargs": None, "multi_modal_hashes": None}
        about |= {"multi_modal_placeholders": None}
        sampling = SamplingParams(max_tokens=outputs, ignore_eos=True)
        return Request(
            **_known(
                Request.__init__, **about, request_id=name, prompt_token_ids=list(prompt), sampling_params=sampling,
                pooling_params=None, block_hasher=self._hasher,
            )
        )  # fmt: skip


def rows(deployment: vllm_api.Deployment, batch: Batch, tables: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """vLLM's virtual batches of a step whose requests have these block tables: key lengths, and a table of pages."""
    step = vllm_api.step(deployment, batch)
    wide = torch.zeros_like(step.block_table_tensor)
    for row, ids in enumerate(tables):
        wide[row, : len(ids)] = torch.tensor(ids, dtype=wide.dtype)
    local = vllm_api.split(deployment, replace(step, block_table_tensor=wide))
    return np.array(local.seq_lens.tolist(), np.int64), np.array(local.block_table_tensor.tolist(), np.int64)


def _all_local(layer_names: Sequence[str]) -> bool:
    """Whether all layers of a group are chunked ones: by their place in the model, not by what vLLM made of them."""
    return all(int(name.split(".")[2]) < command_line.LOCAL_LAYERS for name in layer_names)


def _hash(value: Any) -> bytes:
    """A cheap hash for the prefix cache: which one a user picks is not what is judged."""
    return hash(value).to_bytes(8, "little", signed=True)


def _known(function: Any, **arguments: Any) -> dict[str, Any]:
    """The arguments that a function of this release takes."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in names}
