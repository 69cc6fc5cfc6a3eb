"""What each buffer must hold, what it holds, and how it shows when that is not enough.

An exception alone proves little: `torch.cumsum(out=)` into a slice that is too short never raises, it moves the storage
(or, if the slice is a view into something larger, writes into the neighbour). So the address and the storage size of
every tensor that the builder owns are compared before and after each build.
"""

import linecache
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cases import reference, vllm_api
from cases.batches import Named
from cases.stand_ins import OutOfRange
from cases.verdicts import Batch, Overflow, Overflowed

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Need:
    """What one batch asks of the buffers, by the definition: virtual batches, tokens, pages over all rows."""

    rows: reference.Rows
    pages: np.ndarray[Any, Any]

    @classmethod
    def of(cls, batch: Batch, chunk: int, block_size: int) -> "Need":
        rows = reference.rows(np.array(batch.query_lens), np.array(batch.seq_lens), chunk)
        return cls(rows, reference.pages(rows.key_lens, block_size))

    @property
    def count(self) -> int:
        return len(self.rows.query_lens)


REQUIRED: dict[str, Callable[[Need], int]] = {
    # FlashInfer: a pointer per row and the end, a last-page length per row, an index per page
    "paged_kv_indptr": lambda need: need.count + 1,
    "paged_kv_last_page_len": lambda need: need.count,
    "paged_kv_indices": lambda need: int(need.pages.sum()),
    # FlexAttention: one map row, length and offset per row, a start per row and the end
    "persistent_physical_to_logical": lambda need: need.count,
    "persistent_seq_lens": lambda need: need.count,
    "persistent_offset_tensor": lambda need: need.count,
    "persistent_query_start_loc": lambda need: need.count + 1,
    "persistent_doc_ids": lambda need: int(need.rows.query_lens.sum()),
}
"""Entries along the first dimension that a builder's buffer must have for a batch."""


@dataclass(frozen=True)
class Built:
    """One build: the step it was for, its metadata (None if it raised), and the buffers that overran on the way."""

    need: Need
    step: Any
    metadata: Any
    overflows: tuple[Overflow, ...]


class Auditor:
    """Builds batches on one deployment and watches the builder's buffers."""

    def __init__(self, deployment: vllm_api.Deployment) -> None:
        self.deployment = deployment
        self.cell = deployment.cell
        self._builder = deployment.new_builder()

    def build(self, batch: Batch, *, shared_prefix: bool = True) -> Built:
        """Build one batch; what raises for any other reason than a buffer that is too small goes through."""
        need = Need.of(batch, self.cell.chunk, self.deployment.spec.block_size)
        # a shared prefix: as many pages as a real step, without as much memory for what maps pages back
        step = vllm_api.step(self.deployment, batch, shared_prefix=shared_prefix)
        before = _storages(self._builder)
        metadata = None
        try:
            metadata = vllm_api.build(self.deployment, self._builder, step)
            overflows = tuple(_resized(before, _storages(self._builder), need, batch))
        except OutOfRange as error:
            overflows = (Overflow(error.buffer, error.required, error.allocated, "silent", batch),)
        except Exception as error:
            overflow = _raised(error, _storages(self._builder), need, batch)
            if overflow is None:
                raise
            overflows = (overflow,)
        if any(overflow.how != "raised" for overflow in overflows):  # the buffer has moved: start over
            self._builder = self.deployment.new_builder()
        return Built(need, step, metadata, overflows)


def read(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The values of a tensor that vLLM may use again.

    A copy: numpy's view of a tensor pins its storage, and a later write that would have moved it raises instead.
    """
    return tensor.detach().clone().cpu().numpy()


@dataclass(frozen=True)
class Measured:
    """A tensor of one batch's metadata was measured: right, or `short` of the entries the batch needs."""

    short: Overflow | None = None


def measure(auditor: Auditor, named: Iterable[Named], one: Callable[[Auditor, Named], Measured | None]) -> None:
    """Overflowed with the first batch for which `one` finds its tensor short, cut down to its smallest.

    `one` gives None for a batch that has no such tensor; an assertion fails if that is so for all of them.
    """
    measured = [found for n in named if (found := one(auditor, n))]
    assert measured, "no batch had what this case measures: nothing was judged"
    short = next((found.short for found in measured if found.short), None)

    def shows(batch: Batch) -> Overflow | None:
        found = one(auditor, Named("smaller", batch))
        return found.short if found else None

    if short:
        raise Overflowed([smallest(short, auditor.cell.chunk, shows)])


def smallest(overflow: Overflow, chunk: int, shows: Callable[[Batch], Overflow | None]) -> Overflow:
    """The overflow for a batch cut down in one direction after the other; `shows` looks for it in another batch.

    Fewer requests, fewer query tokens (a query's place in its chunk is what matters: its start is kept, then its end),
    shorter sequences. Each direction is followed in steps that halve until a step of one no longer shows the overflow.
    """
    for size, cut in (
        (len, lambda requests, n: requests[n:]),
        (_longest, lambda requests, n: _trimmed(requests, n, keep_start=True)),
        (_longest, lambda requests, n: _trimmed(requests, n, keep_start=False)),
    ):
        step = size(_requests(overflow.batch)) - 1
        while step > 0:
            requests = _requests(overflow.batch)
            found = shows(_batch(cut(requests, step))) if step < size(requests) else None
            overflow, step = (found, step) if found else (overflow, step // 2)
    nearer = [(q, s - (s - q) // chunk * chunk) for q, s in _requests(overflow.batch)]
    return shows(_batch(nearer)) or overflow


def _longest(requests: list[tuple[int, int]]) -> int:
    return max(q for q, _ in requests)


def _trimmed(requests: list[tuple[int, int]], n: int, *, keep_start: bool) -> list[tuple[int, int]]:
    """The requests with no query longer than the longest less n."""
    most = _longest(requests) - n
    return [(min(q, most), s - keep_start * max(q - most, 0)) for q, s in requests]


def _requests(batch: Batch) -> list[tuple[int, int]]:
    return list(zip(batch.query_lens, batch.seq_lens, strict=True))


def _batch(requests: list[tuple[int, int]]) -> Batch:
    return Batch(tuple(q for q, _ in requests), tuple(s for _, s in requests))


@dataclass(frozen=True)
class _Storage:
    """Where a tensor was, how long, and the tensor itself: another one under the same name is another allocation."""

    tensor: torch.Tensor
    address: int
    size: int
    length: int


def _storages(builder: Any) -> dict[str, _Storage]:
    """Every tensor the builder owns, found by walking it; names such as `paged_kv_indptr.gpu`."""
    return {
        name: _Storage(
            tensor, tensor.data_ptr(), tensor.untyped_storage().nbytes(), tensor.shape[0] if tensor.dim() else 1
        )
        for name, tensor in _tensors("", vars(builder))
    }


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors(f"{name}.{key}" if name else str(key), item)
    elif type(value).__name__ == "CpuGpuBuffer":
        yield from _tensors(name, {"cpu": value.cpu, "gpu": value.gpu})


def _resized(before: dict[str, _Storage], after: dict[str, _Storage], need: Need, batch: Batch) -> Iterator[Overflow]:
    """Buffers whose storage moved under a view, being too short; a builder may replace one by a longer one."""
    for name, old in before.items():
        new = after.get(name)
        moved = new is not None and new.tensor is old.tensor and (new.address, new.size) != (old.address, old.size)
        if not moved:
            continue
        buffer = name.split(".")[0]
        assert buffer in REQUIRED, f"the storage of {buffer} moved during a build, and the audit knows no need for it"
        detail = f"its storage went from {old.size} to {new.size} bytes under a view, nothing was raised"
        if REQUIRED[buffer](need) > old.length:
            yield Overflow(buffer, REQUIRED[buffer](need), old.length, "resized", batch, detail)


def _raised(error: Exception, storages: dict[str, _Storage], need: Need, batch: Batch) -> Overflow | None:
    """The buffer that vLLM's failing statement names, if it is too short for the batch; None blames something else.

    The statement is the innermost one of vLLM, or one in the same file that led to it: a helper that copies into a
    buffer knows it by another name. Only what torch and numpy raise for a wrong size counts, and nothing of ours.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, (ValueError, RuntimeError, IndexError)) or Path(frames[-1].filename).parent == HERE:
        return None
    allocated = {name.split(".")[0]: storage.length for name, storage in storages.items()}
    inside = next((frame.filename for frame in reversed(frames) if "vllm" in Path(frame.filename).parts), "")
    for frame in reversed(frames):
        statement = _statement(frame) if frame.filename == inside else ""
        for buffer, required_for in REQUIRED.items():
            if buffer in statement and buffer in allocated and (required := required_for(need)) > allocated[buffer]:
                detail = f"{type(error).__name__}: {error}"
                return Overflow(buffer, required, allocated[buffer], "raised", batch, detail)
    return None


def _statement(frame: traceback.FrameSummary) -> str:
    """The source of the statement a frame was in: it may span lines."""
    first, last = frame.lineno or 0, frame.end_lineno or frame.lineno or 0
    return "".join(linecache.getline(frame.filename, number) for number in range(first, last + 1))
