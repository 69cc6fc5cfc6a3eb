"""bfloat16 in Triton's interpreter, which keeps it as 16-bit integers (Triton 3.9.0, `runtime/interpreter.py`).

There `tl.dot` multiplies those integers, and a conversion from float32 cuts bits off. Put right here: a dot computes in
float32, as Triton documents it, and a conversion rounds to nearest even, as PTX's `cvt.rn.bf16.f32` does.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def rounded(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16 of each float32, ties to even; a NaN stays one."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(numbers), 0x7FC0, nearest).astype(np.uint16)


def widened(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The float32 of the same value as each bfloat16."""
    return (np.ascontiguousarray(bits).astype(np.uint32) << 16).view(np.float32)


def teach() -> None:
    """Let the interpreter of this process convert bfloat16 and take dots of it."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    builder: Any = InterpreterBuilder
    convert, dot, fp_to_fp = builder.cast_impl, builder.create_dot, builder.create_fp_to_fp

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        match src.dtype.scalar, dst_type.scalar:
            case tl.float32, tl.bfloat16:
                return TensorHandle(rounded(src.data), tl.bfloat16)
            case tl.bfloat16, tl.float32:
                return TensorHandle(widened(src.data), tl.float32)
        return convert(self, src, dst_type)

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        if {src.dtype.scalar, dst_type.scalar} == {tl.float32, tl.bfloat16}:
            return cast_impl(self, src, dst_type)
        return fp_to_fp(self, src, dst_type, rounding_mode)

    def create_dot(self: Any, a: Any, b: Any, *more: Any) -> Any:
        both = [cast_impl(self, x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b)]
        return dot(self, *both, *more)

    builder.cast_impl, builder.create_dot, builder.create_fp_to_fp = cast_impl, create_dot, create_fp_to_fp
