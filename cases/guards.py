"""Guard words around every buffer that an object owns, for a while: a write outside changes them.

The memory of each buffer is moved into a larger allocation that holds a pattern on both sides. That makes it a view
into something larger, and torch treats those in another way: `torch.cumsum(out=)` into a slice that is too short writes
on behind it, where it would have moved the storage of a buffer that has its own. So a build between guard words is
another one than that of the builder as released, whose addresses and storage sizes are compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cases import owned

BYTE = 0xA5
ROOM = 1 << 16
"""Bytes of pattern on either side: more than any write that a stand-in lets an interpreted kernel do."""
LARGEST = 64 << 20
"""Larger ones, such as FlashInfer's workspace, are not copied for this."""
SMALL = 1 << 20
"""Larger ones are copied once: what a build leaves in them is then that of the builds between guard words."""


@dataclass(frozen=True)
class Outside:
    """A write beside a buffer: entries (rows, if it has several dimensions) before its start and past its end."""

    name: str
    allocated: int
    before: int
    past: int


class Guards:
    """`with Guards(builder): ...` puts guard words around what the builder owns; its own memory is back afterwards."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self._places: list[_Place] = []
        self._own: dict[int, tuple[owned.Memory, owned.Memory]] = {}
        self.left_inside = False
        """Whether the builder kept a view into the guarded memory: it is not as it was before."""

    def __enter__(self) -> "Guards":
        # tensors first: most arrays are views of them
        for name, memory in sorted(owned.walk(self._builder), key=lambda found: isinstance(found[1], np.ndarray)):
            tensor = memory if isinstance(memory, torch.Tensor) else _tensor(memory)
            if tensor is None or not 0 < tensor.untyped_storage().nbytes() <= LARGEST:
                continue
            if not any(place.covers(memory) for place in self._places):
                self._places.append(_Place(name, tensor))
        for place in self._places:
            place.fill()
        owned.exchange(self._builder, self._into)
        return self

    def __exit__(self, *_: object) -> None:
        owned.exchange(self._builder, lambda _name, memory: self._own.get(id(memory), (memory, memory))[1])
        self._own.clear()
        self.left_inside = any(place.holds(memory) for _, memory in owned.walk(self._builder) for place in self._places)

    def outside(self) -> Iterator[Outside]:
        """What was written beside the buffers in the last block."""
        for place in self._places:
            if found := place.outside():
                yield found

    def _into(self, _name: str, memory: owned.Memory) -> owned.Memory:
        for place in self._places:
            if place.covers(memory):
                moved = place.moved(memory)
                self._own[id(moved)] = moved, memory
                return moved
        return memory


class _Place:
    """One storage, and the larger allocation that takes its place."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self.name, self.length = name, tensor.shape[0] if tensor.dim() else 1
        self._entry = tensor.element_size() * (tensor.stride(0) if tensor.dim() and tensor.stride(0) else 1)
        storage = tensor.untyped_storage()
        self._own = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        self._all = torch.full((2 * ROOM + len(self._own),), BYTE, dtype=torch.uint8, device=tensor.device)
        end, self._filled = ROOM + len(self._own), False
        self._before, self._inside, self._past = self._all[:ROOM], self._all[ROOM:end], self._all[end:]

    def covers(self, memory: owned.Memory) -> bool:
        """Whether the memory is in the storage."""
        return 0 <= _address(memory) - self._own.data_ptr() < len(self._own)

    def holds(self, memory: owned.Memory) -> bool:
        """Whether the memory is in the larger allocation."""
        return 0 <= _address(memory) - self._all.data_ptr() < len(self._all)

    def fill(self) -> None:
        """Let all be as in the storage, and the guard words untouched."""
        if len(self._own) <= SMALL or not self._filled:
            self._inside.copy_(self._own)
            self._filled = True
        self._before.fill_(BYTE)
        self._past.fill_(BYTE)

    def moved(self, memory: owned.Memory) -> owned.Memory:
        """The same view, into the larger allocation."""
        offset = ROOM + _address(memory) - self._own.data_ptr()
        if isinstance(memory, np.ndarray):
            return np.ndarray(memory.shape, memory.dtype, self._all.numpy(), offset, memory.strides)
        view = torch.empty(0, dtype=memory.dtype, device=memory.device)
        return view.set_(self._all.untyped_storage(), offset // memory.element_size(), memory.size(), memory.stride())

    def outside(self) -> Outside | None:
        before, past = (np.flatnonzero(part.cpu().numpy() != BYTE) for part in (self._before, self._past))
        if not len(before) and not len(past):
            return None
        return Outside(
            self.name,
            self.length,
            -(-(ROOM - int(before[0])) // self._entry) if len(before) else 0,
            -(-(int(past[-1]) + 1) // self._entry) if len(past) else 0,
        )


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor | None:
    """The whole of an array's own memory; None for one that torch has no type for, or that is a view with gaps."""
    return torch.from_numpy(array) if array.dtype.kind in "biuf" and array.flags.c_contiguous else None


def _address(memory: owned.Memory) -> int:
    return memory.data_ptr() if isinstance(memory, torch.Tensor) else memory.ctypes.data
