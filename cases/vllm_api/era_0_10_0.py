"""Release 0.10.0.

No layer is wrapped: the model runner splits a step for the groups whose spec is a chunked one, just before it calls the
builder, which keeps no tensors. With the hybrid manager off the chunked layers' spec is no chunked one, and nothing is
split (https://github.com/vllm-project/vllm/pull/21707). A builder is not told its layers.
"""

from dataclasses import dataclass
from typing import Any

from vllm.attention.layer import Attention
from vllm.attention.selector import get_attn_backend
from vllm.v1.attention.backends.flashinfer import FlashInferBackend
from vllm.v1.attention.backends.utils import CommonAttentionMetadata, make_local_attention_virtual_batches
from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec

from cases.vllm_api import flat_metadata, model_runner_0_10
from cases.vllm_api.model_runner_0_10 import config, kv_cache_groups, spec_of

__all__ = ["Attention", "CommonAttentionMetadata", "config", "kv_cache_groups", "spec_of"]


def chunked_layer(_chunk: int, **shape: Any) -> Any:
    """A layer that the model runner is to split for; the chunk is the model's."""
    return Attention(use_irope=True, **shape)


@dataclass
class AttentionGroup(model_runner_0_10.AttentionGroup):
    """Layers of one backend and spec, and their builder."""

    def create_metadata_builders(self, config: Any, device: Any, _block_size: int) -> None:
        self.metadata_builders = [self.backend.get_builder_cls()(self.spec, config, device)]


def backend_of(config: Any, _layer: Any, spec: Any) -> Any:
    """The backend that the model runner asks for, for the builder of a group."""
    model = config.model_config
    return get_attn_backend(
        spec.head_size, model.dtype, spec.dtype, spec.block_size, model.is_attention_free, use_mla=spec.use_mla
    )


def cudagraph_support(builder: Any, _config: Any, _spec: Any) -> str:
    """What a builder says that CUDA graphs may hold, in the words of later releases."""
    return "always" if builder.full_cudagraph_supported else "never"


def split(spec: Any, _chunk: int, step: Any) -> Any:
    """The virtual batches that `GPUModelRunner._prepare_inputs` makes of a step, and when it makes them."""
    if not isinstance(spec, ChunkedLocalAttentionSpec):
        return step
    return make_local_attention_virtual_batches(spec.attention_chunk_size, step, spec.block_size)


def build(builder: Any, spec: Any, step: Any) -> Any:
    """The metadata of a step."""
    return flat_metadata.in_parts(builder.build(0, split(spec, 0, step)), FlashInferBackend.use_trtllm_decode_attention)
