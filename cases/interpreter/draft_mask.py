"""The packed draft mask of FlashInfer's XQA decode kernel.

Contract (FlashInfer, `flashinfer.xqa.xqa`): the mask is [batch, q_seq_len, words] for windows of one length, or
[total query tokens, words] for ragged ones, where each request's rows cover its own window; a row holds
ceil(q_seq_len / 32) words of 32 bits, lowest bit first, given as pairs of uint16, low half first; q_seq_len is the
longest window. Bit t of a row says whether the query token sees token t of its own window. A window is the last keys of
its request, as many as it has query tokens; all keys before them are seen (csrc/xqa/mha.cu, `applyMaskFromInput`).
"""

from typing import Any

import numpy as np

from cases.interpreter.paged import needs
from cases.interpreter.rows import Bools, ContractBroken, Ints, numbers


def unpack(mask: Any, query_lens: Ints, longest: int, *, ragged: bool) -> list[Bools]:
    """For each row of the call, which token of its window each query token sees. Shapes: [q, q] per row."""
    needs("the draft mask", mask, int(query_lens.sum()) if ragged else len(query_lens))
    halves = 2 * -(-longest // 32)
    if mask.shape[-1] != halves or (not ragged and tuple(mask.shape[1:]) != (longest, halves)):
        raise ContractBroken(f"the draft mask is {tuple(mask.shape)} for windows of up to {longest}")
    words = numbers(mask).astype("<u2").reshape(-1, halves)
    bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").astype(bool)
    ends = np.cumsum(query_lens)
    return [bits[end - q : end, :q] for end, q in zip(ends.tolist(), query_lens.tolist(), strict=True)]
