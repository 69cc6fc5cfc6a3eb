"""What vLLM made of what a cell asked for: dtype, pages and heads of its KV cache, its kernels, its CUDA-graph mode."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.overrides import TorchFunctionMode
from vllm import config as vllm_config
from vllm.config import CompilationConfig, set_current_vllm_config
from vllm.platforms import current_platform
from vllm.v1.attention.backends import utils

try:
    from vllm.v1.worker.utils import select_common_block_size
except ImportError:
    select_common_block_size = None

from cases.cell import Cell
from cases.handed import COUNT, NAMED, OBJECT, handed, having
from cases.verdicts import Ignored, Unavailable

ARGUMENTS = list(inspect.signature(select_common_block_size).parameters) if select_common_block_size else []
OWN_PAGES = "backends" in ARGUMENTS
"""Whether a kernel's pages may be smaller than the manager's blocks, and how small can be asked for: since 0.18.

Older releases page as the manager does, or choose the size inside their model runner.
"""


def kv_dtype(spec: Any) -> str:
    """What a KV-cache spec stores: the name of its quantization, such as `fp8_per_tensor`, or a torch dtype's."""
    mode = getattr(spec, "kv_quant_mode", None)
    return mode.name.lower() if mode else str(spec.dtype).removeprefix("torch.")


def kv_layout(config: Any) -> str:
    """The KV cache's axes from the outermost in, in vLLM's letters (B blocks, H heads, N tokens); empty if unknown."""
    resolve = getattr(config.cache_config, "get_resolved_kv_cache_layout", None)
    if resolve is None:  # until 0.28 the backend that was selected last has set it, for the process
        with set_current_vllm_config(config):
            return str(utils.get_kv_cache_layout()).lower()
    return str(handed("the layout of the KV cache", resolve(), NAMED, resolve).name.lower())


def kernel_page_size(config: Any, backend: Any, spec: Any) -> int:
    """Tokens per page as kernels see them: vLLM cuts the manager's pages for a backend that takes smaller ones only.

    ValueError with vLLM's words where no size serves.
    """
    if not OWN_PAGES:
        return int(spec.block_size)
    with set_current_vllm_config(config):  # the specs are asked for since 0.31
        found = select_common_block_size(*(spec.block_size, [backend], [spec])[: len(ARGUMENTS)])
    return int(handed("the size of a kernel's page", found, COUNT, select_common_block_size))


def in_kernel_pages(config: Any, backend: Any, spec: Any) -> Any:
    """The spec in the pages that kernels see, where vLLM's model runner cuts the manager's blocks into such."""
    page = kernel_page_size(config, backend, spec)
    return spec if page == spec.block_size else spec.copy_with_new_block_size(page)


def ignored(cell: Cell, spec: Any) -> str:
    """What vLLM was asked for and did otherwise without a word, in a sentence; empty if nothing."""
    got = kv_dtype(spec)
    wanted = cell.load.dtype if cell.kv_dtype == "auto" else cell.kv_dtype
    by_bytes = wanted.startswith("fp8") and got == "uint8" and not hasattr(spec, "kv_quant_mode")  # older releases
    if not (got == wanted or by_bytes or (cell.kv_dtype != "auto" and got.startswith(wanted.split("_")[0]))):
        return f"asked for a KV cache of {wanted}, vLLM's has {got} and said nothing"
    for what, asked, found in (
        ("head size", cell.load.head_size, spec.head_size),
        ("KV heads:", cell.load.num_kv_heads, spec.num_kv_heads),
        ("page size", cell.load.block_size, spec.block_size),
    ):
        if asked != found:
            return f"asked for {what} {asked}, vLLM's KV cache has {found} and it said nothing"
    return ""


def check_hybrid(cell: Cell, config: Any) -> None:
    """Ignored where the hybrid manager is not as the cell asked for it; Unavailable where the platform has none."""
    if config.scheduler_config.disable_hybrid_kv_cache_manager != cell.hybrid:
        return
    if cell.hybrid and cell.arch == "cpu" and not current_platform.support_hybrid_kv_cache():
        raise Unavailable("the CPU platform of this vLLM says that it has no hybrid KV-cache manager")
    asked, got = ("on", "off") if cell.hybrid else ("off", "on")
    raise Ignored(f"asked for the hybrid KV-cache manager {asked}, vLLM turned it {got} and said nothing")


def cudagraph_mode(cell: Cell, config: Any, specs: dict[str, Any]) -> str:
    """The CUDA-graph mode that the model runner settles on for the layers in `specs`, which it may lower or refuse.

    vLLM's CPU platform has no graphs and has put NONE in the place of what was asked for. For a presented arch the
    question is asked again as on a GPU: the asked mode, or else the default of the optimization level, compiled
    piecewise around attention. ValueError with vLLM's words where it refuses a mode. Empty until 0.19: there the model
    runner settles it in the midst of its own work.
    """
    own = config.compilation_config
    if not hasattr(own, "resolve_cudagraph_mode_and_sizes"):
        return ""
    asked = own
    if not cell.on_device and cell.arch != "cpu":
        asked = CompilationConfig(
            mode=vllm_config.CompilationMode.VLLM_COMPILE, cudagraph_mode=_asked_mode(cell, config)
        )
        asked.set_splitting_ops_for_v1(config.parallel_config.all2all_backend, 1)
    least, name = None, ""
    with set_current_vllm_config(config):
        for layer, spec in specs.items():
            backend = own.static_forward_context[layer].get_attn_backend()
            handed("the backend of a layer", backend, OBJECT)
            builder = handed("the builder of a backend", backend.get_builder_cls(), OBJECT)
            support = builder.get_cudagraph_support(config, spec)
            handed("support of CUDA graphs", support, having(value=COUNT), builder.get_cudagraph_support)
            if least is None or support.value < least.value:
                least, name = support, backend.__name__
        mode = asked.resolve_cudagraph_mode_and_sizes(least, name, 1 + cell.spec_k)
    return str(handed("the mode of CUDA graphs", mode, NAMED, asked.resolve_cudagraph_mode_and_sizes).name.lower())


def _asked_mode(cell: Cell, config: Any) -> Any:
    from vllm.config.vllm import OPTIMIZATION_LEVEL_TO_CONFIG

    default = OPTIMIZATION_LEVEL_TO_CONFIG[config.optimization_level]["compilation_config"]["cudagraph_mode"]
    return default if cell.cudagraph == "auto" else cell.cudagraph.upper()


class _OnTheCpu(TorchFunctionMode):
    """Tensors asked for on the device that is presented land on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


@contextmanager
def device_of(cell: Cell) -> Iterator[None]:
    """What vLLM puts on "cuda" by that name goes to where the cell's tensors are."""
    if cell.on_device:
        yield
        return
    with _OnTheCpu():
        yield
