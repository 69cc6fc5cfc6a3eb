"""The builder of each attention layer of a cell's model, as vLLM's model runner groups layers and makes builders."""

import copy
from dataclasses import replace
from typing import Any
from unittest import mock

from vllm.config import set_current_vllm_config
from vllm.v1.attention.backends.flashinfer import FlashInferMetadataBuilder
from vllm.v1.kv_cache_interface import KVCacheConfig

from cases import batches
from cases.handed import GROUP, OBJECT, Contract, handed, list_of
from cases.vllm_api import VERSION, Deployment, routes, workspace

GROUPS = list_of(Contract("a list of groups", lambda value: isinstance(value, list) and all(map(GROUP.holds, value))))
TUPLE = Contract("a tuple", lambda value: isinstance(value, list | tuple) and bool(value))
KNOWN = VERSION >= (0, 23, 0)
"""Whether how the installed release groups layers can be asked for here: older ones do it inside their model runner."""
if KNOWN:
    from vllm.v1.worker.gpu.attn_utils import init_attn_backend


def of(deployment: Deployment) -> dict[str, Deployment]:
    """By the names of the layers, in the order of the model: the deployment with that layer's group and spec.

    Steps are short: what flex_attention allocates grows with tokens times pages.
    """
    config, device = copy.copy(deployment.config), deployment.device
    config.scheduler_config = copy.copy(config.scheduler_config)
    config.scheduler_config.max_num_batched_tokens = batches.short_steps(deployment.cell.load).max_num_batched_tokens
    planned = KVCacheConfig(config.cache_config.num_gpu_blocks, [], deployment.groups)
    scratch: Any = mock.patch.object(FlashInferMetadataBuilder, "_get_workspace_buffer", return_value=workspace(device))
    with set_current_vllm_config(config), scratch:
        made = handed("attention groups and more", init_attn_backend(planned, config, device), TUPLE, init_attn_backend)
    found = {}
    for group in (g for of_plan in handed("attention groups", made[0], GROUPS, init_attn_backend) for g in of_plan):
        handed("the builder of attention groups", group.get_metadata_builder(), OBJECT, init_attn_backend)
        if hasattr(group.get_metadata_builder(), "set_workspace_buffer"):
            group.get_metadata_builder().set_workspace_buffer(workspace(device))
        spec = routes.in_kernel_pages(config, group.backend, group.kv_cache_spec)
        made = replace(deployment, config=config, group=group, spec=spec)
        found |= dict.fromkeys(group.layer_names, made)
    layers = list(config.compilation_config.static_forward_context)
    each = Contract(f"all of {', '.join(layers)}", lambda names: not set(layers) - set(names))
    handed("the layers of attention groups", list(found), each, init_attn_backend)
    return {name: found[name] for name in layers}
