"""The packed draft mask that FlashInfer's XQA decode kernel is given for speculative verify windows.

Contract (FlashInfer's XQA decode): for windows of one length the mask is [decodes, q_len, words], for ragged ones
[sum of q_lens, words]; bit j of a row says whether the row's query token sees draft token j of its own window; rows are
padded to whole 32-bit words, given as pairs of uint16, lowest bits first.
"""

import numpy as np
import pytest
import torch

from cases import batches, extents, reference, routes, vllm_api
from cases.batches import Named
from cases.cell import Cell
from cases.verdicts import Overflow, Substituted

pytestmark = [
    pytest.mark.cell(backend=["flashinfer"], arch=vllm_api.has_draft_mask, spec_k=lambda k: k > 0),
    pytest.mark.cell(lambda cell: routes.expected(cell).draft_mask),
]


@pytest.mark.kind("draft mask of XQA")
def test_draft_mask_has_a_row_for_each_window(cell: Cell, auditor: extents.Auditor) -> None:
    """Windows inside a chunk, windows cut by a boundary, and ends of prompts cut into rows of one length.

    Every decode has its rows, and their bits are causal.
    """
    named = batches.within_capacity(cell.load, cell.spec_k, cell.pattern)
    named += batches.split_windows(cell.load, cell.spec_k, cell.pattern)
    named += batches.most_mask_rows(cell.load, cell.spec_k, cell.pattern)
    extents.measure(auditor, named, mask_of)


def mask_of(auditor: extents.Auditor, named: Named) -> extents.Measured | None:
    """None where the batch needs no mask: it has no window of drafts. An assertion fails if a bit is wrong.

    Which rows decode follows from the batch: those before the first with more than 1 + k query tokens.
    """
    rows = auditor.need(named.batch).rows.query_lens
    long = np.flatnonzero(rows > 1 + auditor.cell.spec_k)
    windows = rows[: long[0]] if len(long) else rows
    if not len(windows) or windows.max() <= 1:
        return None
    built = auditor.build(named.batch)
    if built.metadata is None:
        return None  # it raised: the case about the builder's buffers says where
    decode = built.metadata.decode
    if not hasattr(decode, "mask"):
        raise Substituted(f"{named.name}: asked for decode by XQA, which takes a mask, got {type(decode).__name__}")
    assert built.metadata.num_decodes == len(windows), (
        f"{named.name}: {built.metadata.num_decodes} rows decode, by their lengths {len(windows)}"
    )
    assert decode.mask is not None, f"{named.name}: {len(windows)} decodes of up to {windows.max()} tokens, no mask"
    ragged = len(set(windows.tolist())) > 1
    required, found = int(windows.sum()) if ragged else len(windows), decode.mask.shape[0]
    if found < required:
        detail = f"a row for each {'query token' if ragged else 'decode'} is needed, nothing was raised"
        return extents.Measured(Overflow("xqa_draft_mask", required, found, "short", named.batch, detail))
    _assert_causal(decode.mask, windows, named.name)
    return extents.Measured()


def _assert_causal(mask: torch.Tensor, windows: reference.Ints, name: str) -> None:
    """Every row of the packed mask shows a query token its own draft token and those before it."""
    words = -(-int(windows.max()) // 32)
    packed = np.ascontiguousarray(extents.read(mask.view(dtype=torch.int16))).view(np.uint16)
    bits = np.unpackbits(packed.reshape(-1, words * 2).view(np.uint8), axis=1, bitorder="little")
    row = 0
    for window in windows.tolist():
        wanted = np.zeros((window, words * 32), dtype=bool)
        wanted[:, :window] = reference.draft_mask(window)
        assert (bits[row : row + window] == wanted).all(), f"{name}: the mask of a window of {window} is not causal"
        row += window
