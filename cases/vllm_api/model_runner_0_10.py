"""What the releases 0.10.0 to 0.10.2 have in common: the model runner, not the layer, says what a layer asks of the KV
cache and makes a builder itself; the backend is asked for through the environment, the V1 engine too.
"""

import os
from dataclasses import dataclass, field
from typing import Any

from vllm.platforms import current_platform
from vllm.v1.core import kv_cache_utils
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.version import __version__

from cases import releases

BACKEND_NAMES = {"TRITON_ATTN": "TRITON_ATTN_VLLM_V1", "CPU_ATTN": "TORCH_SDPA_VLLM_V1"}
"""What a backend of the V1 engine is called in the environment, where that is not its name."""

MEMORY = 1 << 40
"""Bytes for the KV cache that the planner is told of: more than any load needs, nothing is allocated."""


def config(engine_args: Any, args: dict[str, Any]) -> Any:
    """The VllmConfig of a command line, for the V1 engine; the backend is asked for through the environment.

    Until 0.10.1 the hybrid manager is kept on where the platform says `is_cuda()`, which a presented arch denies: there
    it is turned on again, unless vLLM has another reason against it.
    """
    asked = args.pop("attention_backend")
    os.environ.update(VLLM_USE_V1="1", VLLM_ATTENTION_BACKEND=BACKEND_NAMES.get(asked, asked))
    made = engine_args(**args).create_engine_config()
    drafts, others = made.speculative_config, (made.kv_transfer_config, made.kv_events_config)
    by_platform = not (drafts and drafts.use_eagle()) and others == (None, None)
    if releases.version_of(__version__) < (0, 10, 2) and by_platform and current_platform.support_hybrid_kv_cache():
        made.scheduler_config.disable_hybrid_kv_cache_manager = args.get("disable_hybrid_kv_cache_manager", False)
    return made


def kv_cache_groups(config: Any, _layers: dict[str, Any]) -> list[Any]:
    """The planner's groups of layers, from the specs that the model runner makes."""
    specs = GPUModelRunner.get_kv_cache_spec(_ModelRunner(config))
    return kv_cache_utils.get_kv_cache_config(config, specs, MEMORY).kv_cache_groups


class _ModelRunner:
    """As much of a model runner as its `get_kv_cache_spec` reads."""

    def __init__(self, config: Any) -> None:
        self.vllm_config = config
        self.attention_chunk_size = config.model_config.attention_chunk_size
        self.kv_cache_dtype = config.model_config.dtype
        self.shared_kv_cache_layers: dict[str, str] = {}


@dataclass
class AttentionGroup:
    """Layers of one backend and spec, and their builder; vLLM's class of this name takes a builder ready made."""

    backend: Any
    layer_names: list[str]
    spec: Any
    kv_cache_group_id: int
    metadata_builders: list[Any] = field(default_factory=list)

    def create_metadata_builders(self, config: Any, device: Any, _block_size: int) -> None:
        builder = self.backend.get_builder_cls()
        self.metadata_builders = [builder(self.spec, self.layer_names, config, device)]

    def get_metadata_builder(self) -> Any:
        return self.metadata_builders[0]


def spec_of(group: Any, _layer: str) -> Any:
    """The spec of a layer in its group."""
    return group.kv_cache_spec
