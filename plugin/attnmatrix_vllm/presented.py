"""vLLM's CPU platform, answering for another arch where vLLM asks about the device.

Presented: compute capability, the choice and validation of the attention backend (as vLLM's CUDA platform does it), and
support for the hybrid KV-cache manager. Not presented: `is_cuda()` stays false, tensors live on the CPU, compiled
CUDA code is absent. What branches on those behaves as on a CPU.
"""

import functools
import os
import sys
from types import ModuleType
from typing import Any

import torch
from vllm.platforms.cpu import CpuPlatform
from vllm.platforms.interface import DeviceCapability

from attnmatrix_vllm import CPU, capability_of, presented

for _name in ("_is_avx512_supported", "_is_amx_tile_supported"):
    # Until 0.17 the CPU platform asks torch where the torch of those days answered; the same answers are in torch.cpu
    # now. Here, because vLLM also asks in a process of its own, where it inspects the model's class.
    if not hasattr(torch._C._cpu, _name):
        setattr(torch._C._cpu, _name, getattr(torch.cpu, _name))

if os.environ.get("ATTNMATRIX_EVIDENCE") == "interpreted":
    # Real Triton kernels choose their tiles by what torch says of the device (`triton_reshape_and_cache_flash`).
    _cuda: Any = torch.cuda
    _cuda.get_device_capability = lambda _device=None: capability_of(presented())

CPU_PAGE = 16
"""Tokens of a page that every release's CPU platform takes; 0.10 takes no other."""

WHOLE_ENGINE = os.environ.get("ATTNMATRIX_CASE") == "engine"
"""Whether whole engines run. They compute in float32, so that their tokens can be compared to the last one; backends
that have no such kernels on a GPU are asked whether they serve bfloat16."""


class PresentedPlatform(CpuPlatform):
    """The CPU, seen by vLLM as the arch given to `attnmatrix_vllm.present`."""

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> DeviceCapability | None:
        if presented() == CPU:
            return super().get_device_capability(device_id)
        return DeviceCapability(*capability_of(presented()))

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        of_the_cpu = getattr(super(), "support_hybrid_kv_cache", bool)  # until 0.10.1 vLLM asks is_cuda() instead
        return presented() != CPU or of_the_cpu()

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """The CPU platform's changes, without its rules about pages where it is not the CPU that is presented."""
        cache = vllm_config.cache_config
        asked = cache.block_size
        if presented() != CPU:
            cache.block_size = CPU_PAGE
        super().check_and_update_config(vllm_config)
        if presented() != CPU:
            cache.block_size = asked

    @classmethod
    @functools.cache
    def register_triton_kernel_overrides(cls) -> None:
        """Once per process: vLLM looks at every object of every module for it, half a second for each engine.

        And it stumbles (0.32.0: `triton_utils/dispatcher.py`) where numba has been imported: an object of llvmlite
        answers for any attribute, `__dict__` too, with something that is no dict.
        """
        super().register_triton_kernel_overrides()

    @classmethod
    def get_attn_backend_cls(cls, selected_backend: Any, attn_selector_config: Any, *args: Any, **kwargs: Any) -> str:
        """The class path of the backend asked for, or ValueError with the reasons vLLM's own validation gives.

        Until 0.12 the question comes in many arguments, and the CUDA platform's own method answers it: it validates
        since 0.11, and before it also sets the layout of the KV cache that the backend wants.
        """
        if presented() == CPU:
            return super().get_attn_backend_cls(selected_backend, attn_selector_config, *args, **kwargs)
        if not hasattr(attn_selector_config, "_asdict"):
            choose = _cuda_platform().get_attn_backend_cls.__func__
            return choose(cls, selected_backend, attn_selector_config, *args, **kwargs)
        if WHOLE_ENGINE and attn_selector_config.dtype == torch.float32:
            attn_selector_config = attn_selector_config._replace(dtype=torch.bfloat16)
        reasons = selected_backend.get_class().validate_configuration(
            device_capability=cls.get_device_capability(), **attn_selector_config._asdict()
        )
        if reasons:
            raise ValueError(
                f"Selected backend {selected_backend.name} is not valid for this configuration. Reason: {reasons}"
            )
        return selected_backend.get_path()


@functools.cache
def _cuda_platform() -> Any:
    """vLLM's CUDA platform, for the choices that it makes in Python: imported without the compiled code it asks for."""
    compiled = "vllm._C"
    absent = compiled not in sys.modules
    sys.modules.setdefault(compiled, ModuleType(compiled))
    try:
        from vllm.platforms.cuda import CudaPlatformBase
    finally:
        if absent:
            del sys.modules[compiled]
    return CudaPlatformBase
