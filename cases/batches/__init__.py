"""The batches a scheduler may form for a cell that put the most strain on what is sized by max_num_seqs.

A scheduler may form a batch if it has at most max_num_seqs requests, at most max_num_batched_tokens tokens in all, at
least one token per request, and no sequence so long that no token could follow. Requests stand in the order that vLLM's
reordering makes: decodes and verify windows first, prefills last.
"""

from cases.batches.few_tokens import cut_down, few_tokens, keys_seen, one_row_more
from cases.batches.formed import Named, few_requests, formed, may_be_formed, short_steps
from cases.batches.mixed import all_phases, ends, long_prefills
from cases.batches.most import most, most_mask_rows
from cases.batches.warm_up import SHARES, warm_up
from cases.batches.windows import split_windows
from cases.batches.within import splits_that_fit, within_capacity
from cases.cell import Load
from cases.patterns import Pattern

__all__ = [
    "SHARES",
    "Named",
    "all_phases",
    "cut_down",
    "ends",
    "few_requests",
    "few_tokens",
    "keys_seen",
    "long_prefills",
    "may_be_formed",
    "most",
    "most_mask_rows",
    "one_row_more",
    "short_steps",
    "split_windows",
    "splits_that_fit",
    "warm_up",
    "within_capacity",
    "worst",
]


def worst(load: Load, spec_k: int, pattern: Pattern) -> list[Named]:
    """All batches that are extreme in some direction, fewest tokens first; each once."""
    of_the_cell = (load, spec_k, pattern)
    named = split_windows(*of_the_cell) + long_prefills(*of_the_cell) + most(*of_the_cell)
    named += all_phases(*of_the_cell) + ends(*of_the_cell)
    return sorted(formed(named, load), key=lambda n: sum(n.batch.query_lens))
