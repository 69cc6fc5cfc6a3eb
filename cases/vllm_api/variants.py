"""A cell's deployment as it would be with one thing changed: the manager's block size, or a feature beside the axes."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from vllm.config import KVEventsConfig, KVTransferConfig
from vllm.engine.arg_utils import EngineArgs

from cases import command_line, vllm_api
from cases.cell import Cell
from cases.vllm_api import routes

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
    if not routes.CUTS_PAGES:
        return None
    spec = deployment.spec.copy_with_new_block_size(size)
    page = routes.kernel_page_size(deployment.config, deployment.group.backend, spec)
    group = replace(deployment.group, kv_cache_spec=spec, metadata_builders=[])
    return replace(deployment, spec=spec.copy_with_new_block_size(page), group=group)


def keeps_hybrid(cell: Cell, feature: str) -> bool:
    """Whether vLLM leaves the hybrid manager on for a user who adds a feature and says nothing of the manager."""
    with tempfile.TemporaryDirectory(prefix="attnmatrix-") as folder:
        command_line.write_models(cell, Path(folder))
        arguments = command_line.engine_args(cell, Path(folder)) | FEATURES[feature]()
        arguments.pop("disable_hybrid_kv_cache_manager", None)
        try:
            config = EngineArgs(**arguments).create_engine_config()
        except ValueError:  # this release has no such feature
            return True
    return not config.scheduler_config.disable_hybrid_kv_cache_manager
