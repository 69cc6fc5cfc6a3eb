"""Triton kernels of vLLM in Triton's interpreter, one by one: vLLM itself goes on without Triton, as on any CPU.

Where vLLM sees no driver it leaves its kernels as plain Python functions whose `tl` is a placeholder. Here such a
function, unchanged, gets Triton's own `tl` and runs as under TRITON_INTERPRET=1: its arithmetic and its addresses, on
the memory of the tensors it is given, so that a write past the end of one lands where it would on a GPU.
"""

import functools
import types
from typing import Any


@functools.cache
def interpreted(kernel: Any) -> Any | None:
    """`interpreted(kernel)[grid](...)` runs a kernel (a function, or what `triton.jit` made of one).

    None where Triton's interpreter cannot be had. Arguments annotated as `tl.constexpr` are passed as they are.
    """
    try:
        import triton
        import triton.language as tl
        from triton.runtime.interpreter import InterpretedFunction
    except ImportError:
        return None
    function = getattr(kernel, "fn", kernel)
    own = types.FunctionType(function.__code__, {**function.__globals__, "tl": tl, "triton": triton}, function.__name__)
    own.__annotations__ = dict.fromkeys(function.__annotations__, tl.constexpr)
    return InterpretedFunction(own)
