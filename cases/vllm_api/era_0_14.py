"""Releases 0.14.0 to 0.28.0.

The attention layers live in `vllm.model_executor.layers.attention` (the plain one since 0.16); the splitter returns a
pair, and FlashInfer's metadata has a part for prefills and one for decodes (in the era before: one flat record). The
wrapper of the chunked layers takes the block size as a third argument until 0.17, which their `__init__` passes:
nothing of ours.
"""

from typing import Any

try:
    from vllm.model_executor.layers.attention import Attention
except ImportError:  # until 0.15
    from vllm.attention.layer import Attention
from vllm.model_executor.layers.attention.chunked_local_attention import ChunkedLocalAttention
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.utils import make_local_attention_virtual_batches
from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs
from vllm.v1.worker.utils import AttentionGroup

from cases.handed import NAMED, OBJECT, SPEC, handed, list_of

__all__ = ["Attention", "AttentionGroup", "CommonAttentionMetadata"]


def config(engine_args: Any, args: dict[str, Any]) -> Any:
    """The VllmConfig of a command line."""
    return engine_args(**args).create_engine_config()


def chunked_layer(chunk: int, **shape: Any) -> Any:
    """A layer with chunked local attention."""
    return ChunkedLocalAttention(attention_chunk_size=chunk, **shape)


def specs(config: Any, layers: dict[str, Any]) -> dict[str, Any]:
    """What each layer asks of the KV cache."""
    return {name: handed("a KV-cache spec", layer.get_kv_cache_spec(config), SPEC) for name, layer in layers.items()}


def kv_cache_groups(config: Any, layers: dict[str, Any]) -> list[Any]:
    """The planner's groups of layers; the selection of the backend has set the layout."""
    from vllm.v1.core.kv_cache_utils import get_kv_cache_groups  # here: the planner moves in the era after

    return get_kv_cache_groups(config, specs(config, layers))


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
    made = make_local_attention_virtual_batches(chunk, step, spec.block_size)
    pair = handed("virtual batches and what makes their block table", made, list_of(OBJECT))
    return pair[0]


def build(builder: Any, _spec: Any, step: Any) -> Any:
    """The metadata of a step."""
    metadata = builder.build(0, step)
    if metadata is not None and getattr(metadata, "block_mask", metadata) is None and metadata.direct_build:
        # in 0.19 the layer's forward makes it, from the same metadata
        metadata.block_mask = metadata._build_block_mask_direct()
    return metadata
