"""The instructions that the kernel of `cpu_attn` uses on this CPU, and leave to use them.

vLLM's wheel has three builds of its kernels for x86 and loads one by what torch says of the CPU (0.32.0:
`platforms/cpu.py`, `import_kernels`); in it `cpu_attn` chooses by dtype and page (`cpu_attn.py`, `_get_attn_isa`).
"""

import platform
from importlib.util import find_spec
from typing import Any

import torch

from cases.verdicts import MachineTrouble


def permit(builder: Any) -> None:
    """Ask Linux for the registers of AMX, before `cpu_attn` computes; MachineTrouble where it wants them and gets none.

    Linux gives them only to a process that asks, and ends one that did not by SIGILL. In an engine oneDNN asks, at the
    first linear layer; nothing of vLLM's attention does. A fork inherits the answer.
    """
    ask = getattr(torch._C._cpu, "_init_amx", None)
    if not (ask and ask()) and chosen(builder)["isa"] == "amx":
        raise MachineTrouble(
            "this CPU has AMX, which cpu_attn chose, and the operating system gives this process no AMX registers: "
            "run the cell on Linux 5.16 or newer, outside a sandbox that forbids arch_prctl, or on a CPU without AMX"
        )


def chosen(builder: Any) -> dict[str, str]:
    """For `resolved`: the ISA that `cpu_attn` chose, in its own word, and the build of the wheel that was loaded."""
    return {"isa": str(getattr(builder, "isa", "")), "cpu_build": build()}  # older releases leave it to the build


def build() -> str:
    """The build for x86 that the kernels are from: `avx512_bf16`, `avx512`, `avx2`; empty where there is but one."""
    if platform.machine() not in ("x86_64", "AMD64") or find_spec("vllm._C_AVX2") is None:
        return ""
    if not torch.cpu._is_avx512_supported():
        return "avx2"
    return "avx512_bf16" if torch.cpu._is_avx512_bf16_supported() else "avx512"


def cuts_bfloat16() -> bool:
    """Whether the kernels make bfloat16 of float32 by leaving bits off: without AVX512_BF16 no instruction rounds.

    vLLM's `csrc/cpu/cpu_types_x86.hpp`, the constructors of `BF16Vec8` and `BF16Vec16`.
    """
    return build() in ("avx512", "avx2")
