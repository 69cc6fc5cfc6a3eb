"""One cell, deployed as far as a step's metadata needs: what vLLM makes of it.

Everything that decides what a builder does is vLLM's: the VllmConfig comes from EngineArgs and a model folder on disk,
the layers are vLLM's attention layers, the KV-cache specs and groups come from its planner for hybrid on and off, the
metadata builder is made as its model runner makes it. Ours are the model's numbers and the batch.

What differs between releases is asked of `ERA`, the module of the run of releases that the installed vLLM is of.
"""

import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform
from vllm.v1.attention.backends import cpu_attn, flash_attn, flashinfer, flex_attention, triton_attn  # noqa: F401
from vllm.v1.attention.backends.utils import make_local_attention_virtual_batches
from vllm.version import __version__

from cases import arch as _arch
from cases import command_line, handed, inspections, refusals, releases, stand_ins
from cases.cell import Cell, Load
from cases.patterns import Chunked, Pattern
from cases.verdicts import Batch, Ignored, MachineTrouble, Refused, Substituted, Unavailable, ours
from cases.vllm_api import cpu_isa, registered, routes, said
from cases.vllm_api.steps import step_of

VERSION = releases.version_of(__version__)
"""The installed release."""
HAS_V2 = find_spec("vllm.v1.worker.gpu") is not None
"""Whether the release has the V2 model runner, which puts the requests of a step in another order."""
REFUSALS = (ValueError, NotImplementedError) + ((RuntimeError,) if VERSION < (0, 11, 0) else ())
"""What a configuration is refused with; a RuntimeError is how 0.10's CPU platform refuses a page size."""
inspections.watch()
ERA: Any = import_module(f"cases.vllm_api.{releases.era_of(__version__)}")


@dataclass(frozen=True)
class Deployment:
    """What the model runner holds for the layers of one kind of a cell's model."""

    cell: Cell
    config: Any
    group: Any
    spec: Any
    """The KV-cache spec of its layers in the pages of their kernels; the group's own may have larger blocks."""
    device: torch.device
    groups: list[Any]
    """The planner's groups of layers."""
    layers: dict[str, Any]
    """vLLM's attention layers, by their names in the order of the model."""
    pattern: Pattern
    """What a token sees in its layers."""
    cudagraph: str
    """The CUDA-graph mode of a model with such layers."""

    def new_builder(self) -> Any:
        """A fresh metadata builder, made the way the model runner makes it, of the class the chunked layer names."""
        with set_current_vllm_config(self.config):
            self.group.metadata_builders.clear()
            self.group.create_metadata_builders(self.config, self.device, self.spec.block_size)
        builder = handed.handed("a metadata builder", self.group.get_metadata_builder(), handed.OBJECT)
        if hasattr(builder, "set_workspace_buffer"):  # the model runner shares one workspace too
            builder.set_workspace_buffer(workspace(self.device))
        return builder


def deploy(cell: Cell) -> Deployment:
    """What vLLM makes of the cell.

    Refused with vLLM's reason, Ignored where it did otherwise than asked, Substituted where it chose another backend.
    """
    _arch.see(cell)
    if not cell.on_device:
        stand_ins.install(flashinfer, flex_attention, torch_2_8=VERSION < (0, 11, 0))
    _sees(cell)
    try:
        config = config_of(cell)
    finally:
        registered.require(cell.backend)  # whatever vLLM says: what is not there is not refused
    routes.check_hybrid(cell, config)
    # What profiling a GPU's memory would set: here, room for one longest sequence and a step with a shared prefix.
    load = cell.load
    pages = -(-load.max_model_len // load.block_size) + -(-load.max_num_batched_tokens // load.block_size)
    config.cache_config.num_gpu_blocks = 1 + pages + 2 * load.max_num_seqs
    layers = _layers(cell, config)
    with set_current_vllm_config(config), as_refusal():
        groups = ERA.kv_cache_groups(config, layers)
    handed.groups_of(groups, layers)
    device = torch.device("cuda" if cell.on_device else "cpu")
    local, backend = next(iter(layers)), _backend_of(next(iter(layers)), config, groups, layers)
    if (name := _name(backend)) != cell.backend:
        raise Substituted(f"asked for {cell.backend}, vLLM chose {name}")
    if otherwise := routes.ignored(cell, _spec_of(local, groups)):
        raise Ignored(otherwise)
    with as_refusal():
        pages = routes.in_kernel_pages(config, backend, _spec_of(local, groups))
        specs = {name: ERA.spec_of(group, name) for group in groups for name in group.layer_names}
        cudagraph = routes.cudagraph_mode(cell, config, specs)
    group = _attention_group(local, backend, groups)
    deployment = Deployment(cell, config, group, pages, device, groups, layers, cell.pattern, cudagraph)
    try:
        builder = deployment.new_builder()
        if cell.backend == "cpu_attn":
            cpu_isa.permit(builder)
        if (
            cell.chunk % pages.block_size
        ):  # vLLM splits by whole pages: where it cannot, every case says so, in its words
            split(deployment, step(deployment, Batch((1,), (1,))))
        if cell.arch == "cpu":
            build(deployment, builder, step(deployment, Batch((1,), (1,))))
    except NotImplementedError as error:  # what it raises else is no refusal: the configuration was taken long before
        if not refusals.on_purpose(error):
            raise
        raise Refused(str(error)) from error
    except AttributeError as error:
        if "_OpNamespace" not in str(error):
            raise
        raise Unavailable(f"the compiled code of vLLM {__version__} for the CPU is not here: {error}") from error
    return deployment


def beside(deployment: Deployment) -> Iterator[Deployment]:
    """The layers of each other kind that the model has: the same deployment, with the builder of the first of them."""
    kinds = {deployment.pattern}
    config, groups, layers = deployment.config, deployment.groups, deployment.layers
    for name, pattern in zip(layers, command_line.patterns(deployment.cell), strict=True):
        if pattern not in kinds:
            kinds.add(pattern)
            backend = _backend_of(name, config, groups, layers)
            spec = routes.in_kernel_pages(config, backend, _spec_of(name, groups))
            group = _attention_group(name, backend, groups)
            yield replace(deployment, group=group, spec=spec, pattern=pattern)


def _spec_of(layer: str, groups: list[Any]) -> Any:
    """The KV-cache spec of a layer in its group."""
    return handed.handed("the KV-cache spec of a layer", ERA.spec_of(_group_of(layer, groups), layer), handed.SPEC)


def _backend_of(layer: str, config: Any, groups: list[Any], layers: dict[str, Any]) -> Any:
    backend = ERA.backend_of(config, layers[layer], _spec_of(layer, groups))
    return handed.handed("the backend of a layer", backend, handed.OBJECT)


def _name(backend: Any) -> str:
    """A backend's name as the axis has it."""
    name = handed.handed("the name of a backend", backend.get_name(), handed.TEXT, backend.get_name)
    return str(name).removesuffix("_VLLM_V1").lower()


def _attention_group(layer: str, backend: Any, groups: list[Any]) -> Any:
    group = _group_of(layer, groups)
    return ERA.AttentionGroup(backend, [layer], ERA.spec_of(group, layer), groups.index(group))


def _group_of(layer: str, groups: list[Any]) -> Any:
    return next(group for group in groups if layer in group.layer_names)


def _sees(cell: Cell) -> None:
    """Substituted if vLLM's platform is not that of the cell's arch: nothing that is found would be about it."""
    capability = current_platform.get_device_capability()
    seen = f"sm{capability.major}{capability.minor}" if capability else "no arch"
    if cell.arch != "cpu" and not (seen == cell.arch and current_platform.support_hybrid_kv_cache()):
        raise Substituted(f"asked for {cell.arch} with a hybrid KV-cache manager to turn on or off, vLLM sees {seen}")


def step(deployment: Deployment, batch: Batch, *, shared_prefix: bool = False) -> Any:
    """The metadata that the model runner hands to a builder for one step, with a page table of our own."""
    limit = deployment.config.model_config.max_model_len
    size, device = deployment.spec.block_size, deployment.device
    return step_of(ERA.CommonAttentionMetadata, batch, size, limit, device, shared_prefix=shared_prefix)


def split(deployment: Deployment, step: Any) -> Any:
    """vLLM's virtual batches for one step."""
    rows = ERA.split(deployment.spec, deployment.cell.chunk, step)
    return handed.handed("virtual batches", rows, handed.STEP, make_local_attention_virtual_batches)


def build(deployment: Deployment, builder: Any, step: Any) -> Any:
    """One `build()` of the wrapped builder, as the model runner calls it."""
    with set_current_vllm_config(deployment.config):
        return handed.metadata(ERA.build(builder, deployment.spec, step), _own_build(builder))


def _own_build(builder: Any) -> Any:
    """The backend's own `build`, below the wrapper of chunked layers."""
    builds = [vars(of)["build"] for of in type(builder).__mro__ if "build" in vars(of)]
    return next((one for one in reversed(builds) if not getattr(one, "__isabstractmethod__", False)), None)


def warm() -> None:
    """Do once per process what every cell would do again: read a model config, load plugins, inspect the model class.

    It is done on vLLM's own CPU platform and then forgotten, so that no answer about a device stays behind in a cache.
    On a real device a process must not have touched it before it forks: nothing is done. What vLLM does wrong here is
    told by the cells; only what the cases do not know of its API is told at once.
    """
    if os.environ.get("ATTNMATRIX_EVIDENCE") == "device":
        return
    shape = Load("warm", 1, 64, 64, 32, 8, 2, 128, "bfloat16")
    try:
        deployment = deploy(Cell("warm", "", "cpu_attn", "cpu", False, 1, 64, shape, "cpu"))
        split(deployment, step(deployment, Batch((2,), (64,))))
    except Exception as error:
        if isinstance(error, AttributeError | ImportError | TypeError) and ours(error):
            raise releases.unknown(__version__, error) from error
    said.once_for_all()
    forget()


def forget() -> None:
    """Drop everything vLLM cached in this process, so that the next cell may see another arch."""
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.") and not name.startswith("vllm.model_executor.models"):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


@contextmanager
def as_refusal() -> Iterator[None]:
    """What vLLM raises on purpose while it reads a configuration is its reason to refuse it. All else goes through.

    What it says of a failed inspection of the model is no reason: that is dug out of its log.
    """
    try:
        yield
    except REFUSALS as error:
        if reason := inspections.reason_of(error):
            raise reason from error
        if not refusals.on_purpose(error):
            raise
        raise Refused(str(error)) from error


def _layers(cell: Cell, config: Any) -> dict[str, Any]:
    """vLLM's attention layers of the model: chunked ones first, then global ones, as its Llama-4 model makes them."""
    load, dtype, layers = cell.load, torch.get_default_dtype(), {}
    try:
        torch.set_default_dtype(config.model_config.dtype)
        with set_current_vllm_config(config), as_refusal(), routes.device_of(cell):
            for i, pattern in enumerate(command_line.patterns(cell)):
                name = f"model.layers.{i}.self_attn.attn"
                shape = {
                    "num_heads": load.num_heads,
                    "head_size": load.head_size,
                    "scale": load.head_size**-0.5,
                    "num_kv_heads": load.num_kv_heads,
                    "cache_config": config.cache_config,
                    "prefix": name,
                }
                chunked = isinstance(pattern, Chunked)
                layers[name] = ERA.chunked_layer(pattern.chunk, **shape) if chunked else ERA.Attention(**shape)
    finally:
        torch.set_default_dtype(dtype)
    return layers


def config_of(cell: Cell, **changed: Any) -> Any:
    """A VllmConfig, made as `vllm serve` makes it from its command line and a model folder.

    `changed` are arguments of the command line that stand in place of the cell's; None leaves one out.
    """
    with tempfile.TemporaryDirectory(prefix="attnmatrix-") as folder:
        command_line.write_models(cell, Path(folder))
        args = command_line.engine_args(cell, Path(folder)) | changed
        asked = {name: value for name, value in args.items() if value is not None}
        return read(lambda: ERA.config(EngineArgs, dict(asked)))


def read(configuration: Callable[[], Any]) -> Any:
    """A VllmConfig; Refused in vLLM's words. Where the machine ended an inspection of the model, it is tried again."""
    try:
        with as_refusal():
            return _config(configuration())
    except MachineTrouble:
        inspections.forget()
    with as_refusal():
        return _config(configuration())


def _config(made: Any) -> Any:
    parts = dict.fromkeys(("scheduler_config", "cache_config", "model_config", "compilation_config"), handed.OBJECT)
    return handed.handed("a configuration", made, handed.having(**parts), EngineArgs.create_engine_config)


@functools.cache
def workspace(device: torch.device) -> torch.Tensor:
    """Scratch for FlashInfer's wrappers; on the CPU nothing reads it."""
    size = 1 << 20 if device.type == "cpu" else 394 << 20
    return torch.zeros(size, dtype=torch.uint8, device=device)
