"""The cumulative KV lengths that trtllm-gen's prefill kernel is given on the sm100 family."""

import numpy as np
import pytest

from cases import batches, extents, vllm_api
from cases.batches import Named
from cases.cell import Cell
from cases.verdicts import Overflow, Substituted

pytestmark = pytest.mark.cell(backend=["flashinfer"], arch=vllm_api.prefills_by_trtllm_gen)

BY_TORCH = vllm_api.VERSION >= (0, 20, 0)
"""Since 0.20 vLLM counts the pages of the prefills alone, in torch, which never raises. Until then it counts all rows'
in numpy: the prefills' count on from the decodes', and a buffer that is too short raises."""

NAME = "cum_seq_lens_kv"


@pytest.mark.kind("cumulative lengths of trtllm-gen")
def test_prefill_lengths_have_an_entry_for_each_row(cell: Cell, auditor: extents.Auditor) -> None:
    """`cum_seq_lens_kv` has one entry more than prefill rows, and counts the pages before each row."""
    named = batches.within_capacity(cell.load, cell.spec_k, cell.pattern)
    named += batches.worst(cell.load, cell.spec_k, cell.pattern)
    extents.measure(auditor, named, lengths_of)


def lengths_of(auditor: extents.Auditor, named: Named) -> extents.Measured | None:
    """None where the batch has no row of prefill. An assertion fails if an entry is wrong.

    trtllm-gen decodes windows of one length: the leading rows that are as long as the first, where that is at most
    what it takes. All rows after them are prefill. Until 0.10.2 vLLM gave it no more than 256 tokens of prefill.
    """
    need = auditor.need(named.batch)
    rows = need.rows.query_lens
    others = np.flatnonzero(rows != rows[0])
    decodes = (
        0 if rows[0] > vllm_api.decode_window(auditor.deployment)[0] else int(others[0]) if len(others) else len(rows)
    )
    if decodes == len(rows):
        return None
    if vllm_api.VERSION < (0, 11, 0) and rows[decodes:].sum() > 256:
        return None
    built = auditor.build(named.batch)
    if built.metadata is None and vllm_api.VERSION < (0, 21, 0):
        return None  # numpy filled the same buffer and raised: the case about the builder's buffers says where
    assert built.metadata is not None, f"{named.name}: the builder raised, which trtllm-gen's path never did"
    if not hasattr(built.metadata.prefill, NAME):
        if vllm_api.VERSION < (0, 11, 0):
            return None  # until then vLLM looks at the longest sequence, too
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
    wanted = np.concatenate([[0], np.cumsum(need.pages[decodes:])]) + (0 if BY_TORCH else need.pages[:decodes].sum())
    assert lengths.tolist() == wanted.tolist(), f"{named.name}: {NAME} is {lengths}, by definition {wanted}"
    return extents.Measured()
