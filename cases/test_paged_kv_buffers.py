"""The persistent buffers of a metadata builder under the chunked-local wrapper, on batches that strain them."""

from collections.abc import Iterable

import pytest

from cases import batches, extents, vllm_api
from cases.batches import Named
from cases.cell import Cell
from cases.verdicts import Overflow, Overflowed

flashinfer = pytest.mark.cell(backend=["flashinfer"])
others = pytest.mark.cell(backend=["flash_attn", "triton_attn", "flex_attention", "cpu_attn"])


def overflows(deployment: vllm_api.Deployment, named: Iterable[Named]) -> list[Overflow]:
    """The overflows of all batches, the first of each buffer and kind, with its batch cut down to the smallest."""
    auditor = extents.Auditor(deployment)
    first: dict[tuple[str, str], Overflow] = {}
    for n in named:
        for overflow in auditor.build(n.batch).overflows:
            first.setdefault((overflow.buffer, overflow.how), overflow)
    return [extents.smallest(o, deployment.cell, lambda b, o=o: _same(auditor, b, o)) for o in first.values()]


def _same(auditor: extents.Auditor, batch: batches.Batch, like: Overflow) -> Overflow | None:
    return next((o for o in auditor.build(batch).overflows if (o.buffer, o.how) == (like.buffer, like.how)), None)


def judge(deployment: vllm_api.Deployment, named: Iterable[Named]) -> None:
    found = overflows(deployment, named)
    if found:
        raise Overflowed(found)


@flashinfer
def test_paged_kv_buffers_hold_batches_without_a_split(cell: Cell, deployment: vllm_api.Deployment) -> None:
    """As many virtual batches as requests: what was sized for max_num_seqs is enough."""
    judge(deployment, batches.within_capacity(cell.load, cell.spec_k, cell.chunk))


@flashinfer
def test_paged_kv_buffers_hold_the_worst_batches(cell: Cell, deployment: vllm_api.Deployment) -> None:
    """A scheduler may form each of these; a buffer that cannot hold one overruns in production."""
    judge(deployment, batches.worst(cell.load, cell.spec_k, cell.chunk))


@others
def test_builder_buffers_hold_batches_without_a_split(cell: Cell, deployment: vllm_api.Deployment) -> None:
    """The other backends' builders, on batches with as many virtual batches as requests."""
    judge(deployment, batches.within_capacity(cell.load, cell.spec_k, cell.chunk))


@others
def test_builder_buffers_hold_the_worst_batches(cell: Cell, deployment: vllm_api.Deployment) -> None:
    """The other backends' builders, on the same worst batches."""
    judge(deployment, batches.worst(cell.load, cell.spec_k, cell.chunk))
