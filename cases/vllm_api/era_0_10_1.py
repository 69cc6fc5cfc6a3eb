"""Releases 0.10.1 to 0.10.2.

As `model_runner_0_10` says, the model runner makes specs and builders. The attention layers live in `vllm.attention`; a
chunked one has a wrapped backend, whose builder splits.
"""

from typing import Any

from vllm.attention.layer import Attention
from vllm.attention.layers.chunked_local_attention import ChunkedLocalAttention
from vllm.v1.attention.backends.utils import CommonAttentionMetadata, make_local_attention_virtual_batches

from cases.vllm_api import flat_metadata
from cases.vllm_api.model_runner_0_10 import AttentionGroup, config, kv_cache_groups, spec_of

__all__ = ["Attention", "AttentionGroup", "CommonAttentionMetadata", "config", "kv_cache_groups", "spec_of"]


def chunked_layer(chunk: int, **shape: Any) -> Any:
    """A layer with chunked local attention."""
    return ChunkedLocalAttention(attention_chunk_size=chunk, **shape)


def backend_of(_config: Any, layer: Any, _spec: Any) -> Any:
    """The backend that a layer's builder comes from."""
    return layer.get_attn_backend()


def cudagraph_support(builder: Any, _config: Any, _spec: Any) -> str:
    """What a builder says that CUDA graphs may hold, in vLLM's word."""
    return builder.cudagraph_support.name.lower()


def split(spec: Any, chunk: int, step: Any) -> Any:
    """vLLM's virtual batches for a step."""
    return make_local_attention_virtual_batches(chunk, step, spec.block_size)


def build(builder: Any, _spec: Any, step: Any) -> Any:
    """The metadata of a step."""
    return flat_metadata.in_parts(builder.build(0, step))
