"""The persistent buffers of a metadata builder under the chunked-local wrapper, on batches that strain them."""

from collections.abc import Iterable
from functools import partial

import pytest

from cases import batches, extents
from cases.batches import Named
from cases.cell import Cell
from cases.verdicts import Batch, Overflow, Overflowed

flashinfer = pytest.mark.cell(backend=["flashinfer"])
others = pytest.mark.cell(backend=["flash_attn", "triton_attn", "flex_attention", "cpu_attn"])


def judge(auditor: extents.Auditor, named: Iterable[Named]) -> None:
    """Overflowed with the first overflow of each buffer and kind over all batches, cut down to its smallest batch."""
    first: dict[tuple[str, str], Overflow] = {}
    for n in named:
        for overflow in auditor.build(n.batch).overflows:
            first.setdefault((overflow.buffer, overflow.how), overflow)
    if first:
        raise Overflowed([extents.smallest(o, auditor.cell.chunk, partial(_like, auditor, o)) for o in first.values()])


def _like(auditor: extents.Auditor, overflow: Overflow, batch: Batch) -> Overflow | None:
    """The overflow of the same buffer and kind for another batch."""
    same = (overflow.buffer, overflow.how)
    return next((o for o in auditor.build(batch).overflows if (o.buffer, o.how) == same), None)


@flashinfer
def test_paged_kv_buffers_hold_batches_without_a_split(cell: Cell, auditor: extents.Auditor) -> None:
    """As many virtual batches as requests: what was sized for max_num_seqs is enough."""
    judge(auditor, batches.within_capacity(cell.load, cell.spec_k, cell.chunk))


@flashinfer
def test_paged_kv_buffers_hold_the_worst_batches(cell: Cell, auditor: extents.Auditor) -> None:
    """A scheduler may form each of these; a buffer that cannot hold one overruns in production."""
    judge(auditor, batches.worst(cell.load, cell.spec_k, cell.chunk))


@others
def test_builder_buffers_hold_batches_without_a_split(cell: Cell, auditor: extents.Auditor) -> None:
    """The other backends' builders, on batches with as many virtual batches as requests."""
    judge(auditor, batches.within_capacity(cell.load, cell.spec_k, cell.chunk))


@others
def test_builder_buffers_hold_the_worst_batches(cell: Cell, auditor: extents.Auditor) -> None:
    """The other backends' builders, on the same worst batches."""
    judge(auditor, batches.worst(cell.load, cell.spec_k, cell.chunk))
