"""The cumulative KV lengths that trtllm-gen's prefill kernel is given on the sm100 family."""

import numpy as np
import pytest

from cases import batches, extents, reference
from cases.batches import Named
from cases.cell import Cell
from cases.verdicts import Overflow, Overflowed

pytestmark = pytest.mark.cell(backend=["flashinfer"], arch=["sm100", "sm103"])

NAME = "cum_seq_lens_kv"


def test_prefill_lengths_have_an_entry_for_each_row(cell: Cell, auditor: extents.Auditor) -> None:
    """`cum_seq_lens_kv` has one entry more than prefill rows, and counts the pages before each row."""
    named = batches.within_capacity(cell.load, cell.spec_k, cell.chunk)
    first: Overflow | None = None
    for n in named + batches.worst(cell.load, cell.spec_k, cell.chunk):
        first = first or too_short(auditor, n)
    if first:
        raise Overflowed(
            [extents.smallest(first, cell.chunk, lambda batch: too_short(auditor, Named("smaller", batch)))]
        )


def too_short(auditor: extents.Auditor, named: Named) -> Overflow | None:
    """The lengths' overflow for a batch, if they are too short; an assertion fails if an entry is wrong."""
    built = auditor.build(named.batch)
    prefill = getattr(built.metadata, "prefill", None)
    if prefill is None:
        return None
    metadata, need = built.metadata, built.need
    assert metadata.num_decodes + metadata.num_prefills == need.count, f"{named.name}: rows are lost"
    lengths = extents.read(prefill.cum_seq_lens_kv)
    required = metadata.num_prefills + 1
    if len(lengths) < required:
        detail = (
            f"nothing was raised; rows of prefill: {metadata.num_prefills}; what a kernel would see that reads past "
            "the entries is not shown here"
        )
        return Overflow(NAME, required, len(lengths), "short", named.batch, detail)
    pages = reference.pages(need.rows.key_lens[metadata.num_decodes :], auditor.deployment.spec.block_size)
    wanted = np.concatenate([[0], np.cumsum(pages)])
    assert (lengths == wanted).all(), f"{named.name}: {NAME} is {lengths.tolist()}, by definition {wanted.tolist()}"
    return None
