"""Batches that put no strain on what is sized by max_num_seqs: what is wrong with these is wrong with all."""

from cases.batches.formed import Named, border_of, each, formed
from cases.bounds import Limits
from cases.cell import Load
from cases.patterns import Pattern
from cases.verdicts import Batch


def within_capacity(load: Load, spec_k: int, pattern: Pattern) -> list[Named]:
    """Batches whose requests each stay inside one chunk: a virtual batch per request, so nothing may overrun."""
    window, longest, border = 1 + spec_k, Limits.of(load).longest, border_of(load, pattern)
    named = [Named("decode only", each(load, 1, _inside(border, longest, 1)))]
    if spec_k and window <= min(border, load.max_num_batched_tokens):
        named.append(Named("verify windows inside a chunk", each(load, window, _inside(border, longest, window))))
    named.append(Named("every sequence ends with its chunk", each(load, 1, min(border, longest))))
    # One key, not a whole chunk of them: https://github.com/vllm-project/vllm/issues/21694 disputed that.
    named.append(Named("every token is the first of a chunk", each(load, 1, border + 1)))
    named.append(Named("a decode ends the longest sequence", Batch((1,), (longest,))))
    prefill = min(load.max_num_batched_tokens, longest, border)
    named.append(Named("one prefill inside a chunk", Batch((prefill,), (prefill,))))
    return formed(named, load)


def splits_that_fit(load: Load, spec_k: int, pattern: Pattern) -> list[Named]:
    """Batches cut by chunk boundaries that have at most max_num_seqs virtual batches: what is sized by it is enough."""
    n, window, longest = load.max_num_seqs // 2, 1 + spec_k, Limits.of(load).longest
    if n == 0:
        return []
    named, border = [], border_of(load, pattern)
    if spec_k:
        cut = tuple(border + window - (1 + i % spec_k) for i in range(n))
        named.append(Named("some verify windows cut", Batch((window,) * n, cut)))
    # At the end of a page, one past it, at the end of a chunk, one past it; then a prefill cut once.
    ends = (load.block_size, load.block_size + 1, border, border + 1)
    decodes = tuple(min(ends[i % len(ends)], longest) for i in range(load.max_num_seqs - 2))
    tail = min(load.max_num_batched_tokens - len(decodes), longest - border // 2, border)
    batch = Batch((1,) * len(decodes) + (tail,), (*decodes, border // 2 + tail))
    named.append(Named("decodes of all lengths and a prefill cut once", batch))
    if spec_k and decodes and window < border // 2:
        whole = tuple(border + window + i for i in range(len(decodes)))
        tail = min(load.max_num_batched_tokens - window * len(decodes), tail)
        batch = Batch((window,) * len(decodes) + (tail,), (*whole, border // 2 + tail))
        named.append(Named("whole verify windows and a prefill cut once", batch))
    return formed(named, load)


def _inside(border: int, longest: int, window: int) -> int:
    """A sequence length whose last `window` tokens lie inside one chunk: amid the second one if allowed."""
    room = min(2 * border, longest) - border
    return border + window + (room - window) // 2 if room >= window else window
