"""The persistent buffers of a metadata builder under the chunked-local wrapper, on batches that strain them."""

from collections.abc import Iterable

import pytest

from cases import batches, cut_down, extents
from cases.batches import Named
from cases.cell import Cell
from cases.verdicts import Batch, Overflow, Overflowed, words_of

flashinfer = pytest.mark.cell(backend=["flashinfer"])
others = pytest.mark.cell(backend=lambda backend: backend != "flashinfer")  # those too that nobody has thought of


def judge(auditor: extents.Auditor, named: Iterable[Named]) -> None:
    """Overflowed with the first overflow of each buffer and kind over all batches, cut down to its smallest batch.

    A batch that shows nothing is built again between guard words. A batch that vLLM fails to build for another reason
    does not hide what others showed: it is told beside that.
    """
    first: dict[tuple[str, str], Overflow] = {}
    trouble: Exception | None = None
    for n in named:
        try:
            for overflow in _shown(auditor, n.batch):
                first.setdefault((overflow.buffer, overflow.how), overflow)
        except Exception as error:  # noqa: BLE001 - raised below, or told
            trouble = trouble or error
    if not first:
        if trouble:
            raise trouble
        return
    smallest = [cut_down.smallest(auditor, o) for o in first.values()]
    raise Overflowed(smallest, also=words_of(trouble) if trouble else "") from trouble


def judge_the_worst(cell: Cell, auditor: extents.Auditor) -> None:
    """The same on the worst batches; where all of them fitted, a buffer may still be shorter than some batch needs."""
    judge(auditor, batches.worst(cell.load, cell.spec_k, cell.pattern))
    if latent := auditor.latent():
        raise Overflowed(latent)


def _shown(auditor: extents.Auditor, batch: Batch) -> tuple[Overflow, ...]:
    """The overflows of one batch: of the builder as released, or, if there is none, between guard words."""
    built = auditor.build(batch)
    return built.overflows or auditor.silent(built)


@flashinfer
@pytest.mark.kind("buffers without a split")
def test_paged_kv_buffers_hold_batches_without_a_split(cell: Cell, auditor: extents.Auditor) -> None:
    """As many virtual batches as requests: what was sized for max_num_seqs is enough."""
    judge(auditor, batches.within_capacity(cell.load, cell.spec_k, cell.pattern))


@flashinfer
@pytest.mark.kind("buffers with the worst batches")
def test_paged_kv_buffers_hold_the_worst_batches(cell: Cell, auditor: extents.Auditor) -> None:
    """A scheduler may form each of these; a buffer that cannot hold one overruns in production."""
    judge_the_worst(cell, auditor)


@others
@pytest.mark.kind("buffers without a split")
def test_builder_buffers_hold_batches_without_a_split(cell: Cell, auditor: extents.Auditor) -> None:
    """The other backends' builders, on batches with as many virtual batches as requests."""
    judge(auditor, batches.within_capacity(cell.load, cell.spec_k, cell.pattern))


@others
@pytest.mark.kind("buffers with the worst batches")
def test_builder_buffers_hold_the_worst_batches(cell: Cell, auditor: extents.Auditor) -> None:
    """The other backends' builders, on the same worst batches."""
    judge_the_worst(cell, auditor)
