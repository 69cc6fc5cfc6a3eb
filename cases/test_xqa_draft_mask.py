"""The packed draft mask that FlashInfer's XQA decode kernel is given for speculative verify windows.

Contract (FlashInfer's XQA decode): for windows of one length the mask is [decodes, q_len, words], for ragged ones
[sum of q_lens, words]; bit j of a row says whether the row's query token sees draft token j of its own window; rows are
padded to whole 32-bit words, given as pairs of uint16, lowest bits first.
"""

import numpy as np
import pytest
import torch

from cases import batches, extents, reference
from cases.batches import Named
from cases.cell import Cell
from cases.verdicts import Overflow, Overflowed

pytestmark = pytest.mark.cell(backend=["flashinfer"], arch=["sm90", "sm120", "sm121"], spec_k=lambda k: k > 0)


def test_draft_mask_has_a_row_for_each_window(cell: Cell, auditor: extents.Auditor) -> None:
    """Windows inside a chunk and windows cut by a boundary: every decode has its rows, and their bits are causal."""
    named = batches.within_capacity(cell.load, cell.spec_k, cell.chunk)
    first: dict[str, Overflow] = {}
    for n in [*named, *batches.split_windows(cell.load, cell.spec_k, cell.chunk)]:
        short = too_short(auditor, n)
        if short:
            first.setdefault(short.buffer, short)
    if first:
        shows = lambda batch: too_short(auditor, Named("smaller", batch))  # noqa: E731
        raise Overflowed([extents.smallest(o, cell.chunk, shows) for o in first.values()])


def too_short(auditor: extents.Auditor, named: Named) -> Overflow | None:
    """The mask's overflow for a batch, if it is too short; an assertion fails if a bit is wrong."""
    built = auditor.build(named.batch)
    decode = getattr(built.metadata, "decode", None)
    if decode is None or decode.q_len_per_req <= 1:
        return None
    decodes = built.metadata.num_decodes
    windows = built.need.rows.query_lens[:decodes]
    assert decode.mask is not None, f"{named.name}: {decodes} decodes of up to {windows.max()} tokens, and no mask"
    words = -(-int(windows.max()) // 32)
    mask = np.ascontiguousarray(extents.read(decode.mask.view(dtype=torch.int16))).view(np.uint16)
    ragged = decode.q_cu_seq_lens is not None
    required = int(windows.sum()) if ragged else decodes
    if mask.shape[0] < required:
        detail = f"a row for each {'query token' if ragged else 'decode'} is needed, nothing was raised"
        return Overflow("xqa_draft_mask", required, mask.shape[0], "short", named.batch, detail)
    bits = np.unpackbits(mask.reshape(-1, words * 2).view(np.uint8), axis=1, bitorder="little")
    row = 0
    for window in windows.tolist():
        wanted = np.zeros((window, words * 32), dtype=bool)
        wanted[:, :window] = reference.draft_mask(window)
        assert (bits[row : row + window] == wanted).all(), (
            f"{named.name}: the mask of a window of {window} is not causal"
        )
        row += window
    return None
