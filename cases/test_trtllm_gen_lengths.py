"""The cumulative KV lengths that trtllm-gen's prefill kernel is given on the sm100 family."""

import numpy as np
import pytest

from cases import batches, extents
from cases.batches import Named
from cases.cell import Cell
from cases.verdicts import Overflow, Substituted

pytestmark = pytest.mark.cell(backend=["flashinfer"], arch=["sm100", "sm103"])

NAME = "cum_seq_lens_kv"


def test_prefill_lengths_have_an_entry_for_each_row(cell: Cell, auditor: extents.Auditor) -> None:
    """`cum_seq_lens_kv` has one entry more than prefill rows, and counts the pages before each row."""
    named = batches.within_capacity(cell.load, cell.spec_k, cell.chunk)
    named += batches.worst(cell.load, cell.spec_k, cell.chunk)
    extents.measure(auditor, named, lengths_of)


def lengths_of(auditor: extents.Auditor, named: Named) -> extents.Measured | None:
    """None where the batch has no row of prefill. An assertion fails if an entry is wrong.

    trtllm-gen decodes windows of one length: the leading rows that are as long as the first, where that is at most
    1 + k tokens. All rows after them are prefill.
    """
    need = auditor.need(named.batch)
    rows = need.rows.query_lens
    others = np.flatnonzero(rows != rows[0])
    decodes = 0 if rows[0] > 1 + auditor.cell.spec_k else int(others[0]) if len(others) else len(rows)
    if decodes == len(rows):
        return None
    built = auditor.build(named.batch)
    assert built.metadata is not None, f"{named.name}: the builder raised, which trtllm-gen's path never did"
    if not hasattr(built.metadata.prefill, NAME):
        got = type(built.metadata.prefill).__name__
        raise Substituted(f"{named.name}: asked for prefill by trtllm-gen, which takes {NAME}, got {got}")
    lengths = extents.read(getattr(built.metadata.prefill, NAME))
    required = len(rows) - decodes + 1
    if len(lengths) < required:
        detail = (
            f"nothing was raised, with {len(rows) - decodes} rows of prefill; what a kernel would see that reads "
            "past the entries is not shown here"
        )
        return extents.Measured(Overflow(NAME, required, len(lengths), "short", named.batch, detail))
    wanted = np.concatenate([[0], np.cumsum(need.pages[decodes:])])
    assert lengths.tolist() == wanted.tolist(), f"{named.name}: {NAME} is {lengths}, by definition {wanted}"
    return extents.Measured()
