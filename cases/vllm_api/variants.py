"""A cell's deployment as it would be with one thing changed: the manager's block size, or a feature beside the axes."""

from dataclasses import replace
from typing import Any

from vllm.config import KVEventsConfig, KVTransferConfig

from cases import vllm_api
from cases.cell import Cell
from cases.verdicts import Refused
from cases.vllm_api import routes
from cases.vllm_api.deployment import config_of

FEATURES: dict[str, Any] = {
    "KV events that are off": lambda: {"kv_events_config": KVEventsConfig(enable_kv_cache_events=False)},
}
if vllm_api.VERSION >= (0, 21, 0):  # before, this connector does not say that it supports it
    FEATURES["a connector that supports it"] = lambda: {
        "kv_transfer_config": KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            kv_connector_extra_config={"num_cpu_blocks": 10, "cpu_bytes_to_use": 1 << 20},
        )
    }
"""What a user may add without having to lose the hybrid KV-cache manager."""


def with_manager_blocks(deployment: vllm_api.Deployment, size: int) -> vllm_api.Deployment:
    """The deployment if its manager handed out blocks of `size` tokens; its kernels may want smaller pages."""
    spec, backend = deployment.spec.copy_with_new_block_size(size), deployment.group.backend
    page = routes.kernel_page_size(deployment.config, backend, spec)
    group = replace(deployment.group, kv_cache_spec=spec, metadata_builders=[])
    return replace(deployment, spec=spec.copy_with_new_block_size(page), group=group)


def keeps_hybrid(cell: Cell, feature: str) -> bool:
    """Whether vLLM leaves the hybrid manager on for a user who adds a feature and says nothing of the manager."""
    try:
        config = config_of(cell, disable_hybrid_kv_cache_manager=None, **FEATURES[feature]())
    except Refused:  # this release has no such feature
        return True
    return not config.scheduler_config.disable_hybrid_kv_cache_manager
