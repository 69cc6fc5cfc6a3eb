"""What vLLM hands to the cases, and what stands in the place of each: values that no contract allows."""

from tests.mutants.mutants import BUILD, FLEX, SPLIT, Edit
from tests.mutants.routes import GROUPING

VALUES = ("None", "True", "[]")
CHUNKED = "vllm.model_executor.layers.attention.chunked_local_attention:ChunkedLocalAttention."
FLASH = "vllm.v1.attention.backends.flash_attn:FlashAttention"
FLASH_CELL, XQA_CELL = "flash_attn sm90 on k3 c64 few", "flashinfer sm90 on k3 c64 few"
FLEX_CELL, FORWARD_CELL = "flex_attention sm90 on k0 c64 short", "flash_attn sm90 on k0 c64 short case=forward"

RETURNED = {
    "vllm.engine.arg_utils:EngineArgs.create_engine_config": FLASH_CELL,
    CHUNKED + "get_kv_cache_spec": FLASH_CELL,
    "vllm.model_executor.layers.attention.attention:Attention.get_attn_backend": FLASH_CELL,
    "vllm.v1.attention.backends.utils:get_supported_kv_cache_layouts": FLASH_CELL,
    "vllm.v1.core.kv_cache_utils:get_kv_cache_groups": FLASH_CELL,
    FLASH + "Backend.get_name": FLASH_CELL,
    FLASH + "Backend.get_builder_cls": FLASH_CELL,
    FLASH + "MetadataBuilder.build": FLASH_CELL,
    BUILD: XQA_CELL,
    FLEX + "build": FLEX_CELL,
    "vllm.v1.worker.utils:AttentionGroup.get_metadata_builder": FLASH_CELL,
    "vllm.v1.worker.utils:select_common_block_size": FLASH_CELL,
    "vllm.config.cache:CacheConfig.get_resolved_kv_cache_layout": FLASH_CELL,
    "vllm.config.compilation:CompilationConfig.resolve_cudagraph_mode_and_sizes": FLASH_CELL,
    SPLIT: FLASH_CELL,
    GROUPING: FLASH_CELL,
    "vllm.v1.worker.gpu.input_batch:InputBatch.make_dummy": FLASH_CELL,
    "vllm.v1.core.sched.scheduler:Scheduler.schedule": FLASH_CELL,
    "vllm.v1.core.kv_cache_manager:KVCacheManager.get_block_ids": FLASH_CELL,
    "vllm.v1.core.kv_cache_manager:KVCacheManager.get_computed_blocks": FLASH_CELL,
    "vllm.v1.core.block_pool:BlockPool.get_num_free_blocks": FLASH_CELL,
    "vllm.v1.worker.utils:allocate_kv_cache": FORWARD_CELL,
}
"""The functions of vLLM whose values enter the cases, and a cell in which they do."""

_ROWS = ("query_start_loc", "seq_lens", "block_table", "slot_mapping", "num_actual_tokens", "max_seq_len")
_PARTS = ("block_tables", "seq_lens", "mask", "q_cu_seq_lens", "q_len_per_req", "max_seq_len")
FIELDS = {
    (FLASH + "MetadataBuilder.build", FLASH_CELL, ""): (*_ROWS, "max_query_len"),
    (FLEX + "build", FLEX_CELL, ""): (*_ROWS, "physical_to_logical", "decode_offset", "doc_ids"),
    (BUILD, XQA_CELL, ""): (
        "num_decodes",
        "num_prefills",
        "num_decode_tokens",
        "num_prefill_tokens",
        "prefill",
        "decode",
    ),
    (BUILD, XQA_CELL, ".decode"): _PARTS,
    (BUILD, XQA_CELL, ".prefill"): ("wrapper",),
}
"""The fields of what builders return, or of a part of it."""


def returned() -> list[tuple[str, Edit, str]]:
    """A name, the edit and the cell of each function and value."""
    return [
        (f"{where.rpartition(':')[2]} is {value}", Edit(where, "", value), cell)
        for where, cell in RETURNED.items()
        for value in VALUES
    ]


def fields() -> list[tuple[str, Edit, str]]:
    """The same of each field: one value each, in turn."""
    found = []
    for (where, cell, part), names in FIELDS.items():
        for name in names:
            value, of = VALUES[len(found) % len(VALUES)], f"value{part}"
            made = f"({of} is None or setattr({of}, {name!r}, {value}), value)[1]"
            found.append((f"{where.rpartition(':')[2]}{part}.{name} is {value}", Edit(where, "", made), cell))
    return found
