"""Releases 0.11.0 to 0.13.0.

The attention layers live in `vllm.attention`; the splitter returns the virtual batches alone, and FlashInfer's metadata
is one flat record. Until 0.12 the backend is asked for through a variable of the environment.
"""

import os
from dataclasses import fields
from typing import Any

from vllm.attention.layer import Attention
from vllm.attention.layers.chunked_local_attention import ChunkedLocalAttention
from vllm.v1.attention.backends.utils import CommonAttentionMetadata, make_local_attention_virtual_batches
from vllm.v1.core.kv_cache_utils import get_kv_cache_groups
from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs
from vllm.v1.worker.utils import AttentionGroup

from cases.handed import NAMED, handed
from cases.vllm_api import flat_metadata

__all__ = ["Attention", "AttentionGroup", "CommonAttentionMetadata"]

BACKEND_NAMES: dict[str, str] = {}
"""What a backend is called in the environment, where that is not its name."""


def config(engine_args: Any, args: dict[str, Any]) -> Any:
    """The VllmConfig of a command line."""
    if "attention_backend" not in {field.name for field in fields(engine_args)}:
        asked = args.pop("attention_backend")
        os.environ["VLLM_ATTENTION_BACKEND"] = BACKEND_NAMES.get(asked, asked)
    return engine_args(**args).create_engine_config()


def chunked_layer(chunk: int, **shape: Any) -> Any:
    """A layer with chunked local attention."""
    return ChunkedLocalAttention(attention_chunk_size=chunk, **shape)


def kv_cache_groups(config: Any, layers: dict[str, Any]) -> list[Any]:
    """The planner's groups of layers; the selection of the backend has set the layout."""
    return get_kv_cache_groups(config, {name: layer.get_kv_cache_spec(config) for name, layer in layers.items()})


def spec_of(group: Any, layer: str) -> Any:
    """The spec of a layer in its group."""
    spec = group.kv_cache_spec
    return spec.kv_cache_specs[layer] if isinstance(spec, UniformTypeKVCacheSpecs) else spec


def backend_of(_config: Any, layer: Any, _spec: Any) -> Any:
    """The backend that a layer's builder comes from."""
    return layer.get_attn_backend()


def cudagraph_support(builder: Any, config: Any, spec: Any) -> str:
    """What a builder says that CUDA graphs may hold, in vLLM's word."""
    support = handed("support of CUDA graphs", builder.get_cudagraph_support(config, spec), NAMED)
    return support.name.lower()


def split(spec: Any, chunk: int, step: Any) -> Any:
    """vLLM's virtual batches for a step."""
    return make_local_attention_virtual_batches(chunk, step, spec.block_size)


def build(builder: Any, _spec: Any, step: Any) -> Any:
    """The metadata of a step."""
    return flat_metadata.in_parts(builder.build(0, step))
