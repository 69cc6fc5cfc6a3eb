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
        self._places: dict[tuple[int, int], _Place] = {}
        self._own: dict[int, tuple[owned.Memory, owned.Memory]] = {}
        self._around: list[_Place] = []
        self.left_inside = False
        """Whether the builder kept a view into the guarded memory: it is not as it was before."""

    def __enter__(self) -> "Guards":
        found, self._around = list(owned.walk(self._builder)), []
        arrays = [(name, _bytes(m), len(m)) for name, m in found if isinstance(m, np.ndarray) and m.ndim]
        for name, memory, length in [*_runs(found), *arrays]:
            if memory is None or not 0 < len(memory) <= LARGEST or any(p.covers(memory) for p in self._around):
                continue  # an array is mostly a view of a tensor
            key = (memory.data_ptr(), len(memory))
            if key not in self._places:
                self._places[key] = _Place(name, memory, length)
            self._around.append(self._places[key])
        for place in self._around:
            place.fill()
        owned.exchange(self._builder, self._into)
        return self

    def __exit__(self, *_: object) -> None:
        self.left_inside = False
        owned.exchange(self._builder, self._back)
        self._own.clear()

    def outside(self) -> list[Outside]:
        """What was written beside the buffers in the last block."""
        return [found for place in self._around if (found := place.outside())]

    def _back(self, _name: str, memory: owned.Memory) -> owned.Memory:
        if (pair := self._own.get(id(memory))) is not None:
            return pair[1]
        self.left_inside = self.left_inside or any(place.holds(memory) for place in self._around)
        return memory

    def _into(self, _name: str, memory: owned.Memory) -> owned.Memory:
        for place in self._around:
            if place.covers(memory):
                moved = place.moved(memory)
                self._own[id(moved)] = moved, memory
                return moved
        return memory


class _Place:
    """A run of memory, and the larger allocation that takes its place."""

    def __init__(self, name: str, own: torch.Tensor, length: int) -> None:
        self.name, self.length = name, length
        self._own, self._filled = own, False
        self._all = torch.full((2 * ROOM + len(own),), BYTE, dtype=torch.uint8, device=own.device)
        end = ROOM + len(own)
        self._before, self._inside, self._past = self._all[:ROOM], self._all[ROOM:end], self._all[end:]

    def covers(self, memory: owned.Memory) -> bool:
        """Whether the memory begins in the run."""
        return 0 <= _address(memory) - self._own.data_ptr() < len(self._own)

    def holds(self, memory: owned.Memory) -> bool:
        """Whether the memory begins in the larger allocation."""
        return 0 <= _address(memory) - self._all.data_ptr() < len(self._all)

    def fill(self) -> None:
        """Let all be as in the run, and the guard words untouched."""
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
        entry = len(self._own) // self.length
        return Outside(
            self.name,
            self.length,
            -(-(ROOM - int(before[0])) // entry) if len(before) else 0,
            -(-(int(past[-1]) + 1) // entry) if len(past) else 0,
        )


def _runs(found: list[tuple[str, owned.Memory]]) -> Iterator[tuple[str, torch.Tensor, int]]:
    """The runs of bytes that tensors cover, each with the name and the entries of the first and largest tensor in it.

    Tensors that overlap are in one; two views of one storage that do not are neighbours, and each gets guard words.
    """
    views = [(name, m, _bytes(m)) for name, m in found if isinstance(m, torch.Tensor) and m.numel()]
    views.sort(key=lambda view: (view[2].data_ptr(), -len(view[2])))
    run: tuple[str, torch.Tensor, int] | None = None
    for name, tensor, memory in views:
        if run and memory.data_ptr() < run[1].data_ptr() + len(run[1]):
            end = max(run[1].data_ptr() + len(run[1]), memory.data_ptr() + len(memory))
            run = (run[0], _stretch(run[1], end - run[1].data_ptr()), run[2])
            continue
        if run:
            yield run
        run = (name, memory, tensor.shape[0] if tensor.dim() else 1)
    if run:
        yield run


def _bytes(memory: owned.Memory) -> torch.Tensor | None:
    """The bytes from the first entry of a view to its last; None for an array that is no plain run of numbers."""
    if isinstance(memory, np.ndarray):
        plain = memory.dtype.kind in "biuf" and memory.flags.c_contiguous
        return torch.from_numpy(memory).view(torch.uint8).flatten() if plain else None
    last = sum((size - 1) * stride for size, stride in zip(memory.shape, memory.stride(), strict=True))
    view = torch.empty(0, dtype=torch.uint8, device=memory.device)
    start = memory.storage_offset() * memory.element_size()
    return view.set_(memory.untyped_storage(), start, ((last + 1) * memory.element_size(),), (1,))


def _stretch(memory: torch.Tensor, length: int) -> torch.Tensor:
    return memory.as_strided((length,), (1,), memory.storage_offset())


def _address(memory: owned.Memory) -> int:
    return memory.data_ptr() if isinstance(memory, torch.Tensor) else memory.ctypes.data
