"""Steps of few query tokens that stand at every kind of place of a row, for cases that compute attention."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cases import reference
from cases.batches.formed import Named, Requests, border_of, formed, in_order, may_be_formed
from cases.batches.formed import of as batch_of
from cases.cell import Load
from cases.patterns import Pattern

KEYS = 20_000
"""Keys of all query tokens of a batch together: two tokens at the end of the largest chunk."""


def keys_seen(named: Named, pattern: Pattern) -> int:
    """Keys of all query tokens of a batch together."""
    query_lens, seq_lens = np.array(named.batch.query_lens), np.array(named.batch.seq_lens)
    return int(reference.reach(query_lens, seq_lens, pattern).count.sum())


def few_tokens(load: Load, spec_k: int, pattern: Pattern) -> Iterator[Named]:
    """Decodes, verify windows, an extend and a prefill; a load with one request gets them one by one."""
    window, size, border = 1 + spec_k, load.block_size, border_of(load, pattern)
    # Sequences whose window is cut after its first token, and before its last.
    first, last = border + window - 1, border + 1
    inside = border + window + size // 2
    prefill, extend = min(border, 24), min(2 * border + 3, 40)
    decodes = [(1, border), (1, border + 1), (1, min(size + 1, border)), (1, size)]
    extends = [(extend, border - 1 + extend), (prefill, prefill)]
    windows = [(window, first), (window, inside), (window, last), (window, window)] if spec_k else []
    mixed = [(window, last), (spec_k, border + spec_k - 1), (1, border), (window, inside)] if spec_k else []
    if load.max_num_seqs == 1:
        for request in dict.fromkeys([*windows[:3], decodes[0], *extends]):
            yield from _fitted("one request", [request], load, pattern)
        return
    yield from _fitted("verify windows of one length", windows, load, pattern)
    yield from _fitted("verify windows of mixed lengths", mixed, load, pattern)
    yield from _fitted("decodes", decodes, load, pattern)
    yield from _fitted("a decode, an extend and a prefill", [decodes[0], *extends], load, pattern)


def one_row_more(load: Load, spec_k: int, pattern: Pattern) -> list[Named]:
    """As few tokens as give one virtual batch more than max_num_seqs: of one length that decodes, or all of prefill."""
    others, long, border = load.max_num_seqs - 1, 2 + spec_k, border_of(load, pattern)
    named = [
        Named(
            "a row of prefill more than requests",
            in_order([(2 * long, border + long)] + [(long, long)] * others, spec_k),
        )
    ]
    if spec_k:
        named.append(
            Named("a row of decode more than requests", in_order([(4, border + 2)] + [(2, 2)] * others, spec_k))
        )
    return formed(named, load)


def cut_down(load: Load, pattern: Pattern, requests: int) -> Load:
    """The load with few requests, and steps and sequences that are cut a few times."""
    border = border_of(load, pattern)
    tokens = min(load.max_num_batched_tokens, 2 * border + 3 * load.block_size)
    longest = min(load.max_model_len, 4 * border)
    return replace(
        load,
        max_num_seqs=min(load.max_num_seqs, requests),
        max_num_batched_tokens=tokens,
        max_model_len=longest,
    )


def _fitted(name: str, requests: Requests, load: Load, pattern: Pattern) -> Iterator[Named]:
    """Those of the requests that fit into one step, with not too many keys and a row of the buffers each.

    A single request may be cut all the same: where that overruns a buffer, it is not judged.
    """
    chosen: Requests = []
    for request in requests:
        named = Named(name, batch_of([*chosen, request]))
        query_lens, seq_lens = np.array(named.batch.query_lens), np.array(named.batch.seq_lens)
        if (
            may_be_formed(named.batch, load)
            and reference.virtual_batches(query_lens, seq_lens, pattern) <= max(load.max_num_seqs, 3)
            and keys_seen(named, pattern) <= KEYS
        ):
            chosen = [*chosen, request]
    if chosen:
        yield Named(name, batch_of(chosen))
