"""vLLM's CPU platform, answering for another arch where vLLM asks about the device.

Presented: compute capability, the choice and validation of the attention backend (as vLLM's CUDA platform does it), and
support for the hybrid KV-cache manager. Not presented: `is_cuda()` stays false, tensors live on the CPU, compiled
CUDA code is absent. What branches on those behaves as on a CPU.
"""

import contextlib
from typing import Any

from vllm.platforms.cpu import CpuPlatform
from vllm.platforms.interface import DeviceCapability

from attnmatrix_vllm import CPU, capability_of, presented


class PresentedPlatform(CpuPlatform):
    """The CPU, seen by vLLM as the arch given to `attnmatrix_vllm.present`."""

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> DeviceCapability | None:
        if presented() == CPU:
            return super().get_device_capability(device_id)
        return DeviceCapability(*capability_of(presented()))

    @classmethod
    def import_kernels(cls) -> None:
        """Compiled code, which no case calls; 0.17 asks torch for a name that later ones do not have."""
        with contextlib.suppress(AttributeError):
            super().import_kernels()

    @classmethod
    def support_hybrid_kv_cache(cls) -> bool:
        return presented() != CPU or super().support_hybrid_kv_cache()

    @classmethod
    def get_attn_backend_cls(
        cls, selected_backend: Any, attn_selector_config: Any, num_heads: int | None = None
    ) -> str:
        """The class path of the backend asked for, or ValueError with the reasons vLLM's own validation gives."""
        if presented() == CPU:
            return super().get_attn_backend_cls(selected_backend, attn_selector_config, num_heads)
        reasons = selected_backend.get_class().validate_configuration(
            device_capability=cls.get_device_capability(), **attn_selector_config._asdict()
        )
        if reasons:
            raise ValueError(
                f"Selected backend {selected_backend.name} is not valid for this configuration. Reason: {reasons}"
            )
        return selected_backend.get_path()
