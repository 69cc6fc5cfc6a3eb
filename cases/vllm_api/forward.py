"""The chunked layer of a deployment as it computes: its KV cache, the write to it, and `forward`. Since 0.31.

The cache is allocated by vLLM from the planner's groups, so its layout, strides and dtype are the engine's.
"""

import copy
from typing import Any

import torch
from vllm.config import set_current_vllm_config

from cases.handed import Contract, handed
from cases.vllm_api.deployment import Deployment

try:
    from vllm.v1.core.kv_cache_planning import get_kv_cache_config_from_groups
except ImportError:  # until 0.32
    from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups

try:
    from vllm.v1.worker.utils import allocate_kv_cache
except ImportError:
    allocate_kv_cache = None

KNOWN = allocate_kv_cache is not None
"""Whether the installed release lays out a cache in a way that is known here."""


def layer_of(deployment: Deployment) -> Any:
    """The chunked layer itself: it holds the scales of a quantised cache, and the backend's `impl`."""
    name = deployment.group.layer_names[0]
    return deployment.config.compilation_config.static_forward_context[name]


def kv_cache(deployment: Deployment) -> torch.Tensor:
    """The layer's KV cache [pages, KV heads, tokens of a page, keys and values], of any strides.

    Its pages are the config's `num_gpu_blocks`.
    """
    config = copy.copy(deployment.config)
    config.cache_config = copy.copy(config.cache_config)
    config.cache_config.num_gpu_blocks_override = config.cache_config.num_gpu_blocks
    planned = get_kv_cache_config_from_groups(config, deployment.groups, 0)
    layout = config.cache_config.get_resolved_kv_cache_layout()
    pages = [deployment.spec.block_size] * len(deployment.groups)
    caches = allocate_kv_cache(planned, deployment.device, layout, pages)
    name = deployment.group.layer_names[0]
    by_layer = Contract(
        f"a tensor of four dimensions for {name}",
        lambda found: isinstance(found, dict) and isinstance(one := found.get(name), torch.Tensor) and one.dim() == 4,
    )
    handed("KV caches", caches, by_layer, allocate_kv_cache)
    cache: torch.Tensor = caches[name]
    return cache


def set_scales(layer: Any, query: float, key: float, value: float) -> None:
    """Scales of a layer with a quantised cache, as a checkpoint's would be: what is stored is the number over them."""
    for name, scale in (("q", query), ("k", key), ("v", value)):
        getattr(layer, f"_{name}_scale").fill_(scale)
        setattr(layer, f"_{name}_scale_float", scale)


def write(deployment: Deployment, cache: torch.Tensor, key: Any, value: Any, slots: torch.Tensor) -> None:
    """Keys and values [tokens, KV heads, size] into the cache's slots, as the layer writes a step's own tokens."""
    layer = layer_of(deployment)
    with set_current_vllm_config(deployment.config):
        layer.impl.do_kv_cache_update(layer, key, value, cache, slots)


def forward(deployment: Deployment, metadata: Any, cache: torch.Tensor, query: Any, output: Any) -> None:
    """The layer's attention of one step into `output`. Shapes: query and output [tokens, heads, size].

    The step's own keys and values are in the cache already; backends take them as arguments and do not read them.
    """
    layer = layer_of(deployment)
    heads, size = deployment.spec.num_kv_heads, query.shape[2]
    unread = torch.full((len(query), heads, size), torch.nan, dtype=query.dtype, device=query.device)
    with set_current_vllm_config(deployment.config):
        layer.impl.forward(layer, query, unread, unread, cache, metadata, output)
