"""Every tensor and array that an object owns, found by walking it: no list of names.

Walked are attributes, slots, dicts, lists, tuples, dataclasses, and the objects of vLLM's attention code and its buffer
types. What a builder was given (configurations, layers, the model runner) is not its own; nor is what FlashInfer's
wrappers keep for themselves.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

WALKED = ("vllm.v1.attention", "vllm.v1.utils", "vllm.v1.worker.utils", "vllm.utils", "vllm.attention")
GIVEN = ("vllm.config", "vllm.v1.kv_cache_interface", "vllm.model_executor", "vllm.platforms", "vllm.v1.worker.gpu")

PLAIN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device})
"""Most attributes are of these, and hold nothing."""

Memory = torch.Tensor | np.ndarray[Any, Any]


def walk(owner: Any, walked: tuple[str, ...] = WALKED) -> Iterator[tuple[str, Memory]]:
    """The name of each tensor and array, such as `paged_kv_indptr.gpu`, and itself."""
    found: list[tuple[str, Memory]] = []

    def note(name: str, memory: Memory) -> Memory:
        found.append((name, memory))
        return memory

    exchange(owner, note, walked)
    return iter(found)


def exchange(owner: Any, other: Callable[[str, Memory], Memory], walked: tuple[str, ...] = WALKED) -> None:
    """Put `other(name, memory)` in the place of each tensor and array of an object."""
    _exchange("", owner, other, walked, set())


def _exchange(name: str, value: Any, other: Any, walked: tuple[str, ...], seen: set[int]) -> Any:
    """What is to stand where `value` stands: itself, unless it is memory or a tuple of it."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return other(name, value)
    if isinstance(value, tuple):
        items = [_exchange(f"{name}.{i}", item, other, walked, seen) for i, item in enumerate(value)]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if id(value) in seen:
        return value
    seen.add(id(value))
    if isinstance(value, dict):
        places, put = list(value.items()), value.__setitem__
    elif isinstance(value, list):
        places, put = list(enumerate(value)), value.__setitem__
    elif not name or _is_walked(type(value), walked):
        places, put = list(_attributes(value)), lambda key, new: object.__setattr__(value, key, new)
    else:
        return value
    for key, item in places:
        if type(item) in PLAIN:
            continue
        new = _exchange(f"{name}.{key}" if name else str(key), item, other, walked, seen)
        if new is not item:
            put(key, new)
    return value


@functools.cache
def _is_walked(kind: type, walked: tuple[str, ...]) -> bool:
    """Whether the attributes of objects of a type belong to who holds the object."""
    if issubclass(kind, type) or kind.__module__.startswith(GIVEN):
        return False
    return dataclasses.is_dataclass(kind) or kind.__module__.startswith(walked)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = getattr(kind, "__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
                yield slot, getattr(value, slot)


def buffer(name: str) -> str:
    """The buffer that a tensor is a twin of: `paged_kv_indptr` for `paged_kv_indptr.cpu` and `paged_kv_indptr_np`."""
    first = name.split(".")[0]
    for twin in ("_buffer", "_cpu", "_gpu", "_np"):
        first = first.removesuffix(twin)
    return first


@dataclass(frozen=True)
class Storage:
    """Where a tensor was, how long, and the tensor itself: another one under the same name is another allocation."""

    tensor: torch.Tensor
    address: int
    size: int
    length: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Storage":
        return cls(tensor, tensor.data_ptr(), tensor.untyped_storage().nbytes(), tensor.shape[0] if tensor.dim() else 1)

    def moved_to(self, other: "Storage | None") -> bool:
        """Whether the same tensor is elsewhere, or its storage has another size."""
        return (
            other is not None
            and other.tensor is self.tensor
            and (other.address, other.size) != (self.address, self.size)
        )


def storages(owner: Any) -> dict[str, Storage]:
    """Where each tensor of an object is. An array is always where it was: numpy moves no memory that has a view."""
    return {name: Storage.of(memory) for name, memory in walk(owner) if isinstance(memory, torch.Tensor)}
