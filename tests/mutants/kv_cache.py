"""Faults in the handing out of KV-cache blocks: in vLLM's scheduler, its managers and its block pool."""

from tests.mutants.mutants import Mutant

POOL = "vllm.v1.core.block_pool:BlockPool."
SINGLE = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager."
CHUNKED = "vllm.v1.core.single_type_kv_cache_manager:ChunkedLocalAttentionManager."
FULL = "vllm.v1.core.single_type_kv_cache_manager:FullAttentionManager."
HYBRID = "vllm.v1.core.kv_cache_coordinator:HybridKVCacheCoordinator."
MANAGER = "vllm.v1.core.kv_cache_manager:KVCacheManager."
SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler."
PLANNER = "vllm.v1.core.kv_cache_utils:"

ON, OFF = ("flash_attn sm90 on k3 c64 few",), ("flash_attn sm90 off k3 c64 few",)
PAGED = ("flashinfer sm80 on k0 c64 few",)
LONG = ("flash_attn sm90 on k3 c8192 one",)

KV_CACHE = (
    Mutant("blocks are freed three tokens too soon", CHUNKED + "get_num_skipped_tokens",
           "num_computed_tokens // self.attention_chunk_size", "(num_computed_tokens + 3) // self.attention_chunk_size",
           ON),
    Mutant("blocks are freed a token too soon in long chunks", CHUNKED + "get_num_skipped_tokens",
           "num_computed_tokens // self.attention_chunk_size", "(num_computed_tokens + 1) // self.attention_chunk_size",
           LONG),
    Mutant("a block too many is freed", SINGLE + "remove_skipped_blocks",
           "self._remove_blocks_in_range(request_id, 0, num_skipped_blocks)",
           "self._remove_blocks_in_range(request_id, 0, num_skipped_blocks + 1)", ON),
    Mutant("blocks are freed by drafts not yet judged", MANAGER + "allocate_slots",
           "max(0, total_computed_tokens - request.num_in_flight_tokens)", "total_computed_tokens", ON),
    Mutant("rejected drafts count as computed", SCHEDULER + "update_from_output",
           "request.num_computed_tokens -= num_rejected", "pass", ON),
    Mutant("drafts are cached as if they were right", MANAGER + "allocate_slots",
           "request.num_tokens,\n    )\n    self.coordinator.cache_blocks",
           "request.num_tokens + self.block_pool.hash_block_size,\n    )\n    self.coordinator.cache_blocks", ON),
    Mutant("a block is cached before it is full", SINGLE + "cache_blocks", "num_full_blocks = num_tokens //",
           "num_full_blocks = (num_tokens + 1) //", OFF),
    Mutant("all tokens of a prompt may be hits", MANAGER + "get_computed_blocks", "request.num_tokens - 1",
           "request.num_tokens", ON),
    Mutant("a hit is a block too long in chunked layers", CHUNKED + "find_longest_cache_hit",
           "else:\n            break",
           "else:\n            [computed.append(block_pool.null_block) for computed in computed_blocks]", ON),
    Mutant("a hit's window starts a block late", CHUNKED + "find_longest_cache_hit",
           "local_attention_start_idx // kv_cache_spec.block_size",
           "min(local_attention_start_idx // kv_cache_spec.block_size + 1, max_num_blocks)", ON),
    Mutant("chunked layers' misses do not shorten a hit", HYBRID + "find_longest_cache_hit",
           "curr_hit_length = _new_hit_length\n", "curr_hit_length = max(curr_hit_length, _new_hit_length)\n", ON),
    Mutant("a hit's first needed block is null", SINGLE + "add_local_computed_blocks",
           "num_skipped_blocks = num_skipped_tokens // self.block_size",
           "num_skipped_blocks = (num_skipped_tokens + self.block_size - 1 + bool(num_skipped_tokens))"
           " // self.block_size", ON),
    Mutant("blocks of a hit may still be given away", POOL + "touch", "self.free_block_queue.remove(block)", "pass",
           ON),
    Mutant("blocks of a hit are not counted", POOL + "touch", "block.ref_cnt += 1", "block.ref_cnt = 1", ON),
    Mutant("a block that is given away keeps its hash", POOL + "get_new_blocks",
           "self._maybe_evict_cached_block(block)", "pass", ON),
    Mutant("groups find each other's blocks", POOL + "get_cached_block", "block_hash, group_id", "block_hash, 0",
           ON),
    Mutant("a request keeps a block when it ends", SINGLE + "free", "reversed(self.pop_blocks_for_free(request_id))",
           "reversed(self.pop_blocks_for_free(request_id)[1:])", OFF),
    Mutant("a preempted request's tokens stay computed", SCHEDULER + "_preempt_request",
           "request.num_computed_tokens = 0", "pass", OFF),
    Mutant("pages freed with their chunk are forgotten", SINGLE + "_remove_blocks_in_range", "freed.append(blocks[i])",
           "freed.append(blocks[i]); self.block_pool._maybe_evict_cached_block(blocks[i])", ON),
    Mutant("a hit stops a page early", CHUNKED + "find_longest_cache_hit", "max_length // kv_cache_spec.block_size",
           "(max_length - 1) // kv_cache_spec.block_size", ON),
    Mutant("a hit needs pages before its chunk", CHUNKED + "find_longest_cache_hit",
           "* kv_cache_spec.attention_chunk_size\n", "* 0\n", ON),
    Mutant("kernels page as the manager does", "vllm.v1.worker.utils:AttentionGroup.create_metadata_builders",
           "self.kv_cache_spec.copy_with_new_block_size(\n            kernel_block_size\n        )",
           "self.kv_cache_spec", PAGED),
    Mutant("kernels take any page", "vllm.v1.worker.utils:select_common_block_size",
           "if _block_size_is_supported(backends, kv_manager_block_size, specs):", "if True:", PAGED),
    Mutant("any connector turns the hybrid manager off", "vllm.config.vllm:VllmConfig.__post_init__",
           "if not KVConnectorFactory.supports_hma_config(self.kv_transfer_config):", "if True:",
           ("flash_attn sm90 on k0 c64 few",)),
    Mutant("layers stay apart without the hybrid manager", PLANNER + "unify_hybrid_kv_cache_specs",
           "kv_cache_spec.update(promoted_specs)", "pass", OFF),
)  # fmt: skip
