"""A cell's deployment as it would be with one thing changed: the manager's block size, or a feature beside the axes."""

import inspect
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from vllm.config import KVEventsConfig, KVTransferConfig, set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs

from cases import command_line, vllm_api
from cases.cell import Cell

try:
    from vllm.v1.worker.utils import select_common_block_size
except ImportError:  # until 0.19: a method of the model runner, or none at all
    select_common_block_size = None

FEATURES: dict[str, Any] = {
    "KV events that are off": lambda: {"kv_events_config": KVEventsConfig(enable_kv_cache_events=False)},
    "a connector that supports it": lambda: {
        "kv_transfer_config": KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            kv_connector_extra_config={"num_cpu_blocks": 10, "cpu_bytes_to_use": 1 << 20},
        )
    },
}
"""What a user may add without having to lose the hybrid KV-cache manager."""


def with_manager_blocks(deployment: vllm_api.Deployment, size: int) -> vllm_api.Deployment | None:
    """The deployment if its manager handed out blocks of `size` tokens; its kernels may want smaller pages.

    None if the release always pages as the manager does.
    """
    if select_common_block_size is None:
        return None
    spec, backend = deployment.spec.copy_with_new_block_size(size), deployment.group.backend
    with set_current_vllm_config(deployment.config):
        many = len(inspect.signature(select_common_block_size).parameters)
        page = select_common_block_size(*(size, [backend], [spec])[:many])
    group = replace(deployment.group, kv_cache_spec=spec, metadata_builders=[])
    return replace(deployment, spec=spec.copy_with_new_block_size(page), group=group)


def keeps_hybrid(cell: Cell, feature: str) -> bool:
    """Whether vLLM leaves the hybrid manager on for a user who adds a feature and says nothing of the manager."""
    arguments = command_line.engine_args(cell) | FEATURES[feature]()
    del arguments["disable_hybrid_kv_cache_manager"]
    with tempfile.TemporaryDirectory(prefix="attnmatrix-") as folder:
        (Path(folder) / "config.json").write_text(json.dumps(command_line.tiny_llama4(cell)))
        config = EngineArgs(model=folder, **arguments).create_engine_config()
    return not config.scheduler_config.disable_hybrid_kv_cache_manager
