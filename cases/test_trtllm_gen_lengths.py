"""The cumulative KV lengths that trtllm-gen's prefill kernel is given on the sm100 family."""

from dataclasses import dataclass

import numpy as np
import pytest

from cases import batches, extents
from cases.batches import Named
from cases.cell import Cell
from cases.verdicts import Batch, Overflow, Overflowed, Substituted

pytestmark = pytest.mark.cell(backend=["flashinfer"], arch=["sm100", "sm103"])

NAME = "cum_seq_lens_kv"


def test_prefill_lengths_have_an_entry_for_each_row(cell: Cell, auditor: extents.Auditor) -> None:
    """`cum_seq_lens_kv` has one entry more than prefill rows, and counts the pages before each row."""
    named = batches.within_capacity(cell.load, cell.spec_k, cell.chunk)
    named += batches.worst(cell.load, cell.spec_k, cell.chunk)
    judged = [Lengths.of(auditor, n) for n in named]
    assert any(lengths is not None for lengths in judged), "no batch had a row of prefill: nothing was judged"
    short = next((lengths.short for lengths in judged if lengths and lengths.short), None)
    if short:
        raise Overflowed([extents.smallest(short, cell.chunk, lambda batch: _short(auditor, batch))])


def _short(auditor: extents.Auditor, batch: Batch) -> Overflow | None:
    lengths = Lengths.of(auditor, Named("smaller", batch))
    return lengths.short if lengths else None


@dataclass(frozen=True)
class Lengths:
    """What was judged of one batch's cumulative lengths: too short, or right."""

    short: Overflow | None

    @classmethod
    def of(cls, auditor: extents.Auditor, named: Named) -> "Lengths | None":
        """None where the batch has no row of prefill. An assertion fails if an entry is wrong.

        trtllm-gen decodes windows of one length: the leading rows that are as long as the first, where that is at most
        1 + k tokens. All rows after them are prefill.
        """
        need = extents.Need.of(named.batch, auditor.cell.chunk, auditor.deployment.spec.block_size)
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
            return cls(Overflow(NAME, required, len(lengths), "short", named.batch, detail))
        wanted = np.concatenate([[0], np.cumsum(need.pages[decodes:])])
        assert lengths.tolist() == wanted.tolist(), f"{named.name}: {NAME} is {lengths}, by definition {wanted}"
        return cls(None)
