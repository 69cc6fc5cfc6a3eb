"""Releases 0.29.0 to 0.33.0, the newest that were tried.

The KV-cache layout is negotiated between the backends of a model and kept in the config; before, the backend that was
selected set it for the process. The planner moves to a module of its own in 0.33. Everything else is called as in the
era before.
"""

from typing import Any

from vllm.v1.attention.backends.utils import get_supported_kv_cache_layouts, resolve_kv_cache_layout

try:
    from vllm.v1.core.kv_cache_planning import get_kv_cache_groups
except ImportError:  # until 0.32
    from vllm.v1.core.kv_cache_utils import get_kv_cache_groups

from cases.handed import NAMED, OBJECT, handed, list_of
from cases.vllm_api import era_0_14
from cases.vllm_api.era_0_14 import (
    Attention,
    AttentionGroup,
    CommonAttentionMetadata,
    backend_of,
    build,
    chunked_layer,
    config,
    cudagraph_support,
    spec_of,
    split,
)

__all__ = [
    "Attention",
    "AttentionGroup",
    "CommonAttentionMetadata",
    "backend_of",
    "build",
    "chunked_layer",
    "config",
    "cudagraph_support",
    "kv_cache_groups",
    "spec_of",
    "split",
]


def kv_cache_groups(config: Any, layers: dict[str, Any]) -> list[Any]:
    """The planner's groups of layers, after the layout was resolved as the engine does."""
    backends = {handed("a backend", layer.get_attn_backend(), OBJECT) for layer in layers.values()}
    specs = era_0_14.specs(config, layers)
    supported = handed("KV-cache layouts", get_supported_kv_cache_layouts(backends), list_of(NAMED))
    layouts = [layout.name for layout in supported]
    resolve_kv_cache_layout(config, [layouts], specs.values())
    return get_kv_cache_groups(config, specs)
