"""The only module that imports vLLM: a cell in, vLLM's own objects out. Serves 0.32.0.

Everything that decides what a builder does is vLLM's: the VllmConfig comes from EngineArgs and a model folder on disk,
the layers are vLLM's attention layers, the KV-cache specs and groups come from its planner for hybrid on and off, the
metadata builder from its model runner's helper. Ours are the model's numbers and the batch.
"""

import functools
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.attention.chunked_local_attention import ChunkedLocalAttention
from vllm.platforms import current_platform
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends import cpu_attn, flash_attn, flashinfer, flex_attention, triton_attn  # noqa: F401
from vllm.v1.attention.backends.utils import (
    get_supported_kv_cache_layouts,
    make_local_attention_virtual_batches,
    resolve_kv_cache_layout,
)
from vllm.v1.core.kv_cache_utils import get_kv_cache_groups
from vllm.v1.kv_cache_interface import UniformTypeKVCacheSpecs
from vllm.v1.worker.utils import AttentionGroup
from vllm.version import __version__

from cases import arch as _arch
from cases import command_line, stand_ins
from cases.cell import Cell, Load
from cases.command_line import DRAFT_LAYERS, GLOBAL_LAYERS, LOCAL_LAYERS
from cases.verdicts import Batch, Refused, Substituted
from cases.vllm_api import routes

VERSION = tuple(int(number) for number in re.findall(r"\d+", __version__)[:3])
"""The installed release."""

NULL_PAGE = 0
"""vLLM's block pool keeps page 0 as the null block: what a block table holds where there is no page."""


@dataclass(frozen=True)
class Deployment:
    """One cell, deployed as far as a step's metadata needs: what the model runner holds for the chunked layers."""

    cell: Cell
    config: Any
    group: AttentionGroup
    spec: Any
    device: torch.device
    groups: list[Any]
    """The planner's groups of layers."""
    cudagraph: str
    """The CUDA-graph mode of a model with such layers."""

    def new_builder(self) -> Any:
        """A fresh metadata builder, made the way the model runner makes it, of the class the chunked layer names."""
        with set_current_vllm_config(self.config):
            self.group.metadata_builders.clear()
            self.group.create_metadata_builders(self.config, self.device, self.spec.block_size)
        builder = self.group.get_metadata_builder()
        if hasattr(builder, "set_workspace_buffer"):  # the model runner shares one workspace too
            builder.set_workspace_buffer(workspace(self.device))
        return builder


def deploy(cell: Cell) -> Deployment:
    """What vLLM makes of the cell; Refused with vLLM's reason, Substituted where it chose another backend."""
    _arch.see(cell)
    if not cell.on_device:
        stand_ins.install(flashinfer)
    _sees(cell)
    config = _config(cell)
    if config.scheduler_config.disable_hybrid_kv_cache_manager == cell.hybrid:
        raise Substituted(routes.hybrid_turned(cell))
    # What profiling a GPU's memory would set: here, room for one longest sequence and two pages of each request's own.
    load = cell.load
    config.cache_config.num_gpu_blocks = 1 + -(-load.max_model_len // load.block_size) + 2 * load.max_num_seqs
    layers = _layers(cell, config)
    backends = {layer.get_attn_backend() for layer in layers.values()}
    specs = {name: layer.get_kv_cache_spec(config) for name, layer in layers.items()}
    with set_current_vllm_config(config), _as_refusal():
        layouts = [layout.name for layout in get_supported_kv_cache_layouts(backends)]
        resolve_kv_cache_layout(config, [layouts], specs.values())
        groups = get_kv_cache_groups(config, specs)
    local = next(name for name, layer in layers.items() if isinstance(layer, ChunkedLocalAttention))
    group = next(group for group in groups if local in group.layer_names)
    spec = _spec_of(group, local)
    backend = layers[local].get_attn_backend()
    if backend.get_name().lower() != cell.backend:
        raise Substituted(f"asked for {cell.backend}, vLLM chose {backend.get_name()}")
    with _as_refusal():
        if other := routes.other_than_asked(cell, config, backend, spec):
            raise Substituted(other)
        specs = {name: _spec_of(group, name) for group in groups for name in group.layer_names}
        cudagraph = routes.cudagraph_mode(cell, config, specs)
    attention_group = AttentionGroup(backend, [local], spec, groups.index(group))
    device = torch.device("cuda" if cell.on_device else "cpu")
    deployment = Deployment(cell, config, attention_group, spec, device, groups, cudagraph)
    try:
        deployment.new_builder()
    except NotImplementedError as error:  # what it raises else is no refusal: the configuration was taken long before
        raise Refused(str(error)) from error
    return deployment


def _spec_of(group: Any, layer: str) -> Any:
    """The spec of a layer in its group."""
    spec = group.kv_cache_spec
    return spec.kv_cache_specs[layer] if isinstance(spec, UniformTypeKVCacheSpecs) else spec


def _sees(cell: Cell) -> None:
    """Substituted if vLLM's platform is not that of the cell's arch: nothing that is found would be about it."""
    capability = current_platform.get_device_capability()
    seen = f"sm{capability.major}{capability.minor}" if capability else "no arch"
    if cell.arch != "cpu" and not (seen == cell.arch and current_platform.support_hybrid_kv_cache()):
        raise Substituted(f"asked for {cell.arch} with a hybrid KV-cache manager to turn on or off, vLLM sees {seen}")


def resolved(deployment: Deployment) -> dict[str, Any]:
    """What vLLM chose by itself."""
    builder = deployment.group.get_metadata_builder()
    native = f"{deployment.cell.backend}-native"
    window = 1 + deployment.cell.spec_k
    return {
        "backend": deployment.group.backend.get_name().lower(),
        "prefill_kernel": "trtllm-gen" if type(_part(deployment, "prefill")).__name__ == "TRTLLMPrefill" else native,
        "decode_kernel": decode_kernel(deployment) or native,
        "draft_mask": getattr(_part(deployment, "decode", window), "mask", None) is not None,
        "hybrid": "off" if deployment.config.scheduler_config.disable_hybrid_kv_cache_manager else "on",
        "kv_spec": type(deployment.spec).__name__,
        "kv_dtype": routes.kv_dtype(deployment.spec),
        "kv_layout": routes.kv_layout(deployment.config),
        "block_size": deployment.spec.block_size,
        "cudagraph": deployment.cudagraph,
        "cudagraph_support": builder.get_cudagraph_support(deployment.config, deployment.spec).name.lower(),
    }


def decode_kernel(deployment: Deployment) -> str | None:
    """The decode kernel that FlashInfer's builder settled on, `xqa` or `trtllm-gen`; None for a backend's own."""
    kernel = getattr(deployment.group.get_metadata_builder(), "flashinfer_trtllm_api_decode_kernel", None)
    return kernel.value if kernel is not None else None


def _part(deployment: Deployment, part: str, tokens: int = 0) -> Any:
    """FlashInfer's builder decides at each build: what it makes of one request of so many tokens, or as fit a chunk."""
    if deployment.cell.backend != "flashinfer":
        return None
    load = deployment.cell.load
    tokens = tokens or min(deployment.cell.chunk, load.max_num_batched_tokens, load.max_model_len)
    try:
        metadata = build(deployment, deployment.new_builder(), step(deployment, Batch((tokens,), (tokens,))))
    except Exception:  # noqa: BLE001 - the cases about the builder judge that; this is only for the record
        return None
    return getattr(metadata, part)


def step(deployment: Deployment, batch: Batch, *, shared_prefix: bool = False) -> CommonAttentionMetadata:
    """The metadata that the model runner hands to a builder for one step, with a page table of our own."""
    device, size = deployment.device, deployment.spec.block_size
    query_lens, seq_lens = np.array(batch.query_lens, np.int32), np.array(batch.seq_lens, np.int32)
    starts = np.concatenate([[0], np.cumsum(query_lens)]).astype(np.int32)
    prefix = int((seq_lens - query_lens).min()) // size if shared_prefix else 0
    table = torch.from_numpy(page_table(seq_lens, size, deployment.config.model_config.max_model_len, prefix))
    lens = torch.from_numpy(seq_lens)
    return CommonAttentionMetadata(
        query_start_loc=torch.from_numpy(starts).to(device),
        query_start_loc_cpu=torch.from_numpy(starts),
        seq_lens=lens.to(device),
        num_reqs=len(query_lens),
        num_actual_tokens=int(query_lens.sum()),
        max_query_len=int(query_lens.max()),
        max_seq_len=int(seq_lens.max()),
        block_table_tensor=table.to(device),
        # any slots do, so long as no two are the same: a builder hands them on
        slot_mapping=torch.arange(1, 1 + int(query_lens.sum()), dtype=torch.int64, device=device),
        seq_lens_cpu_upper_bound=lens,
    )


def page_table(seq_lens: Any, block_size: int, max_model_len: int, prefix: int) -> np.ndarray[Any, Any]:
    """A block table [requests, pages of max_model_len], handed out from the highest page down.

    The first `prefix` pages of all requests are the same, as after a hit in the prefix cache; no other page is shared,
    and none is where its index would suggest.
    """
    own = -(-seq_lens // block_size) - prefix
    table = np.full((len(seq_lens), -(-max_model_len // block_size)), NULL_PAGE, np.int32)
    next_page = prefix + int(own.sum())
    table[:, :prefix] = np.arange(next_page, next_page - prefix, -1)
    next_page -= prefix
    for row, pages in enumerate(own.tolist()):
        table[row, prefix : prefix + pages] = np.arange(next_page, next_page - pages, -1)
        next_page -= pages
    return table


def split(deployment: Deployment, step: CommonAttentionMetadata) -> CommonAttentionMetadata:
    """vLLM's virtual batches for one step."""
    return make_local_attention_virtual_batches(deployment.cell.chunk, step, deployment.spec.block_size)[0]


def build(deployment: Deployment, builder: Any, step: CommonAttentionMetadata) -> Any:
    """One `build()` of the wrapped builder, as the model runner calls it."""
    with set_current_vllm_config(deployment.config):
        return builder.build(0, step)


def warm() -> None:
    """Do once per process what every cell would do again: read a model config, load plugins, inspect the model class.

    It is done on vLLM's own CPU platform and then forgotten, so that no answer about a device stays behind in a cache.
    On a real device a process must not have touched it before it forks: nothing is done.
    """
    if os.environ.get("ATTNMATRIX_EVIDENCE") == "device":
        return
    shape = Load("warm", 1, 64, 64, 32, 8, 2, 128, "bfloat16")
    deployment = deploy(Cell("warm", "", "cpu_attn", "cpu", False, 1, 64, shape, "cpu"))
    split(deployment, step(deployment, Batch((2,), (64,))))
    forget()


def forget() -> None:
    """Drop everything vLLM cached in this process, so that the next cell may see another arch."""
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.") and not name.startswith("vllm.model_executor.models"):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


@contextmanager
def _as_refusal() -> Iterator[None]:
    """What vLLM raises while it reads a configuration is its reason to refuse it. pydantic's error is a ValueError."""
    try:
        yield
    except (ValueError, NotImplementedError) as error:
        raise Refused(str(error)) from error


def _layers(cell: Cell, config: Any) -> dict[str, Any]:
    """vLLM's attention layers of the model: chunked ones first, then global ones, as its Llama-4 model makes them."""
    load, dtype, layers = cell.load, torch.get_default_dtype(), {}
    try:
        torch.set_default_dtype(config.model_config.dtype)
        with set_current_vllm_config(config), _as_refusal(), routes.device_of(cell):
            for i in range(LOCAL_LAYERS + GLOBAL_LAYERS + DRAFT_LAYERS[cell.draft]):
                name = f"model.layers.{i}.self_attn.attn"
                shape = {
                    "num_heads": load.num_heads,
                    "head_size": load.head_size,
                    "scale": load.head_size**-0.5,
                    "num_kv_heads": load.num_kv_heads,
                    "cache_config": config.cache_config,
                    "prefix": name,
                }
                local = i < LOCAL_LAYERS
                layers[name] = (
                    ChunkedLocalAttention(attention_chunk_size=cell.chunk, **shape) if local else Attention(**shape)
                )
    finally:
        torch.set_default_dtype(dtype)
    return layers


def _config(cell: Cell) -> Any:
    """A VllmConfig, made as `vllm serve` makes it from its command line and a model folder."""
    with tempfile.TemporaryDirectory(prefix="attnmatrix-") as folder, _as_refusal():
        command_line.write_models(cell, Path(folder))
        return EngineArgs(**command_line.engine_args(cell, Path(folder))).create_engine_config()


@functools.cache
def workspace(device: torch.device) -> torch.Tensor:
    """Scratch for FlashInfer's wrappers; on the CPU nothing reads it."""
    size = 1 << 20 if device.type == "cpu" else 394 << 20
    return torch.zeros(size, dtype=torch.uint8, device=device)
