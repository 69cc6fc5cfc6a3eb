"""What is wrong with an output, in words: by query token and head, with the token's place in its chunk."""

from dataclasses import dataclass

import numpy as np

from cases import reference
from cases.forward.inputs import Inputs
from cases.forward.tolerance import tolerated
from cases.patterns import Pattern
from cases.reference import Bools, Floats, Ints
from cases.verdicts import Batch

SENTINEL = -77.0
"""What an output holds before: no mean of values from -2 to 2, and exact in every dtype."""


@dataclass(frozen=True)
class Judged:
    """Which query tokens are wrong [tokens], and why, in words (empty if none is)."""

    tokens: Bools
    untouched: Ints
    words: str


def judge(
    output: Floats, inputs: Inputs, batch: Batch, pattern: Pattern, dtype: str, backend: str, *, cut: bool
) -> Judged:
    """An output [tokens, heads, size] against the definition: rows left as they were, NaN, then the largest error."""
    allowed = tolerated(inputs.sums, dtype, backend, output.shape[2], inputs.exact_heads, cut=cut)
    untouched = (output == SENTINEL).all(axis=2)
    nan = np.isnan(output).any(axis=2)
    error = np.where(nan[:, :, None], 0.0, np.abs(output - inputs.wanted))
    over = (error - allowed).max(axis=2)
    wrong = untouched | nan | (over > 0)
    if not wrong.any():
        return Judged(wrong.any(axis=1), np.array([], dtype=np.int64), "")
    kind, of = next((k, m) for k, m in (("untouched", untouched), ("NaN", nan), ("wrong", over > 0)) if m.any())
    token, head = (int(i) for i in np.unravel_index(np.where(of, over, -np.inf).argmax(), of.shape))
    place = where(batch, pattern, token)
    if kind == "wrong":
        number = int((error[token, head] - allowed[token, head]).argmax())
        kind = f"off by {error[token, head, number]:.3g} where {allowed[token, head, number]:.3g} is allowed"
    rows = wrong.any(axis=1)
    return Judged(
        rows,
        np.flatnonzero(untouched.any(axis=1)),
        f"{place}, head {head}: {kind}; wrong are {named_tokens(rows)} of {len(rows)} query tokens",
    )


def where(batch: Batch, pattern: Pattern, token: int) -> str:
    """A query token in words: its request, its position, and its place in the chunk."""
    local = reference.reach(np.array(batch.query_lens), np.array(batch.seq_lens), pattern)
    position = int(local.first[token] + local.count[token]) - 1
    return f"query token {token} (request {local.request[token]}, position {position}, {pattern.place(position)})"


def named_tokens(rows: Bools) -> str:
    """The query tokens of a mask, the first eight by their numbers."""
    tokens = np.flatnonzero(rows).tolist()
    return ", ".join(map(str, tokens[:8])) + (f" and {len(tokens) - 8} more" if len(tokens) > 8 else "")
