"""How a model of a compiled kernel says that it was given what the kernel's documentation does not allow.

Imports nothing of vLLM: the models are used next to any of its releases.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

HALF = (torch.float16, torch.bfloat16)
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
FLOATS = (*HALF, torch.float32) if os.environ.get("ATTNMATRIX_CASE") == "engine" else HALF
"""Unquantised dtypes that a model takes. No kernel takes float32: only whole engines are let use it, whose tokens are
then those of a reference in float32 to the last one."""
INTS = (torch.int32, torch.uint32)


class ContractBroken(AssertionError):
    """A caller gave a kernel something its documentation does not allow, or what no model here knows."""


class OutOfRange(Exception):
    """A kernel would access `required` entries of a buffer that has `allocated`: silent on a GPU."""

    def __init__(self, buffer: str, required: int, allocated: int, access: str = "write") -> None:
        self.buffer, self.required, self.allocated, self.access = buffer, required, allocated, access
        into = {"write": "into", "read": "of"}[access]
        super().__init__(f"{buffer}: a kernel would {access} {required} entries {into} {allocated}")


_RECORD: ContextVar[list[OutOfRange] | None] = ContextVar("out_of_range", default=None)


@contextmanager
def recorded() -> Iterator[list[OutOfRange]]:
    """Let the models go on where a kernel would read past an end, until the block ends; gives what they met.

    An output that depends on what lies there is NaN: nobody knows what a GPU would find. One that does not is right.
    """
    met: list[OutOfRange] = []
    token = _RECORD.set(met)
    try:
        yield met
    finally:
        _RECORD.reset(token)


def read(buffer: str, required: int, allocated: int) -> None:
    """Where a kernel reads `required` entries of a buffer: OutOfRange, or a note in a block of `recorded`."""
    if required <= allocated:
        return
    error = OutOfRange(buffer, required, allocated, "read")
    met = _RECORD.get()
    if met is None:
        raise error
    met.append(error)


def require(holds: bool, says: str) -> None:
    """ContractBroken with these words if a condition of the contract does not hold."""
    if not holds:
        raise ContractBroken(says)


def integers(name: str, tensor: Any, entries: int) -> torch.Tensor:
    """The first `entries` of a contiguous vector of 32-bit integers, as int64; shorter if the tensor is."""
    require(torch.is_tensor(tensor) and tensor.dim() == 1, f"{name} is no vector")
    require(tensor.dtype in INTS, f"{name} is {tensor.dtype}, documented is int32")
    require(tensor.is_contiguous(), f"{name} has strides {tensor.stride()}")
    read(name, entries, len(tensor))
    return tensor[:entries].to(torch.int64)


def offsets(name: str, tensor: Any, rows: int) -> list[int]:
    """Cumulative lengths [rows + 1], which start at 0 and never fall."""
    found: list[int] = integers(name, tensor, rows + 1).tolist()
    require(len(found) == rows + 1, f"{name} has {len(found)} entries for {rows} rows")
    require(found[0] == 0 and found == sorted(found), f"{name} does not start at 0 or falls: {found[:8]}")
    return found


def vectors(name: str, tensor: Any, shape: Sequence[int], dtypes: Sequence[torch.dtype], *, dense: bool = True) -> None:
    """Shape, dtype and strides of queries or outputs: the last dimension lies together, and all of them if `dense`."""
    require(torch.is_tensor(tensor), f"{name} is no tensor")
    require(tuple(tensor.shape) == tuple(shape), f"{name} is {tuple(tensor.shape)}, wanted {tuple(shape)}")
    require(tensor.dtype in dtypes, f"{name} is {tensor.dtype}, wanted {' or '.join(map(str, dtypes))}")
    require(tensor.stride(-1) == 1, f"{name} has strides {tensor.stride()}")
    require(not dense or tensor.is_contiguous(), f"{name} is not contiguous: strides {tensor.stride()}")
