"""The batches that attain what cases/bounds.py proves to be the most."""

from cases import bounds
from cases.batches.formed import Named, Requests, of
from cases.bounds import Limits
from cases.cell import Load
from cases.patterns import Pattern


def most(load: Load, spec_k: int, pattern: Pattern) -> list[Named]:
    """One batch for each bound: virtual batches, pages over all rows, rows of a uniform draft mask."""
    limits = Limits.of(load)
    if limits.longest < 1:
        return []  # a prompt of one token leaves no room for another
    border = pattern.border(limits.longest)
    named = [Named("most virtual batches", of(_most_units(limits, border, border)))]
    if border % load.block_size == 0 or limits.longest <= border:
        named.append(Named("most pages", of(_most_units(limits, border, load.block_size))))
    return named + most_mask_rows(load, spec_k, pattern)


def most_mask_rows(load: Load, spec_k: int, pattern: Pattern) -> list[Named]:
    """Prompt tails and verify windows that a boundary cuts into rows of one length: most rows of a uniform mask."""
    limits = Limits.of(load)
    rows = bounds.mask_rows(limits, spec_k, pattern)
    if rows == 0:
        return []
    n, t, longest = limits.max_num_seqs, limits.max_num_batched_tokens, limits.longest
    border = pattern.border(longest)
    if border <= 1 + spec_k and rows == min(t // border, n * (longest // border)):
        counts = _dealt(rows, min(n, rows), longest // border)
        requests = [(count * border, count * border) for count in counts]
    elif longest >= border + 2:
        counts = _dealt(rows, min(n, rows), 2)
        requests = [(2, border + 2) if count == 1 else (4, border + 2) for count in counts]
    else:
        requests = [(2, 2)] * rows
    return [Named("most rows of a uniform mask", of(requests))]


def _most_units(limits: Limits, border: int, unit: int) -> Requests:
    """As the proof of `bounds.pages` goes: first tokens, then second ones, then runs of `unit` tokens."""
    n = min(limits.max_num_seqs, limits.max_num_batched_tokens)
    if limits.longest <= border:
        return [(1, limits.longest)] * n
    left = limits.max_num_batched_tokens - n
    second = min(n, left)
    units = -(-limits.longest // unit) - border // unit - 1
    extra = _dealt(min((left - second) // unit, n * units) + n, n, 1 + units)
    query_lens = [1 + (i >= n - second) + unit * (extra[i] - 1) for i in range(n)]
    # What is left over brings nothing; with it, one request is the same batch whatever the unit.
    query_lens[-1] += min(
        limits.max_num_batched_tokens - sum(query_lens), limits.longest - (border - 1 + query_lens[-1])
    )
    return [(q, border - 1 + q) for q in query_lens]


def _dealt(total: int, hands: int, most_of_one: int) -> list[int]:
    """`total` in `hands` parts of 1 .. `most_of_one`, the last ones as full as may be."""
    parts, left = [1] * hands, total - hands
    for i in reversed(range(hands)):
        parts[i] += min(left, most_of_one - 1)
        left -= parts[i] - 1
    return parts
