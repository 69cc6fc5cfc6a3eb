"""Verify windows: 1 + k tokens of a request that decodes with drafts."""

from cases.batches.formed import Named, border_of, each, formed
from cases.cell import Load
from cases.patterns import Pattern
from cases.verdicts import Batch


def split_windows(load: Load, spec_k: int, pattern: Pattern) -> list[Named]:
    """Every request verifies drafts across a chunk boundary: once for each place the boundary may fall, then all mixed.

    A window of 1 + k tokens can be cut after k .. 1 tokens. These give two virtual batches per request, 2N in all. In
    this order they are also the steps of requests whose drafts are all rejected: one token is kept, the sequence falls
    back to it, and the next window starts one place further, over slots that hold rejected drafts.
    """
    window, border = 1 + spec_k, border_of(load, pattern)
    named = [
        Named(f"verify windows cut {cut}+{window - cut}", each(load, window, border + window - cut))
        for cut in range(spec_k, 0, -1)
    ]
    if spec_k > 1 and load.max_num_seqs > 1:
        n = min(load.max_num_seqs, load.max_num_batched_tokens // window)
        seq_lens = tuple(border + window - (1 + i % spec_k) for i in range(n))
        named.append(Named("verify windows cut everywhere", Batch((window,) * n, seq_lens)))
    return formed(named, load)
