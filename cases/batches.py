"""The batches a scheduler may form for a cell that put the most strain on what is sized by max_num_seqs.

A scheduler may form a batch if it has at most max_num_seqs requests, at most max_num_batched_tokens tokens in all, at
least one token per request, and no sequence longer than max_model_len. Requests stand in the order that vLLM's
reordering makes: decodes and verify windows first, prefills last.
"""

from dataclasses import dataclass, replace

from cases.cell import Load
from cases.verdicts import Batch


@dataclass(frozen=True)
class Named:
    """A batch and what it is for."""

    name: str
    batch: Batch


FEW, SHORT = 8, 1024
"""What a row says does not depend on how many requests or tokens stand before it: more would only take longer."""


def few_requests(load: Load) -> Load:
    """The load with no more requests than it takes to mix them."""
    return replace(load, max_num_seqs=min(load.max_num_seqs, FEW))


def short_steps(load: Load) -> Load:
    """The load with few requests, and no more tokens in a step than it takes to cut them often."""
    return replace(few_requests(load), max_num_batched_tokens=min(load.max_num_batched_tokens, SHORT))


def may_be_formed(batch: Batch, load: Load) -> bool:
    """Whether a scheduler with this load's limits may form the batch."""
    return (
        0 < len(batch.query_lens) <= load.max_num_seqs
        and sum(batch.query_lens) <= load.max_num_batched_tokens
        and all(0 < q <= s <= load.max_model_len for q, s in zip(batch.query_lens, batch.seq_lens, strict=True))
    )


def within_capacity(load: Load, spec_k: int, chunk: int) -> list[Named]:
    """Batches whose requests each stay inside one chunk: a virtual batch per request, so nothing may overrun."""
    window = 1 + spec_k
    named = [Named("decode only", _each(load, 1, _inside(chunk, load, 1)))]
    if spec_k and window <= min(chunk, load.max_num_batched_tokens):
        named.append(Named("verify windows inside a chunk", _each(load, window, _inside(chunk, load, window))))
    named.append(Named("every sequence ends with its chunk", _each(load, 1, min(chunk, load.max_model_len))))
    prefill = min(load.max_num_batched_tokens, load.max_model_len, chunk)
    named.append(Named("one prefill inside a chunk", Batch((prefill,), (prefill,))))
    return [n for n in named if may_be_formed(n.batch, load)]


def split_windows(load: Load, spec_k: int, chunk: int) -> list[Named]:
    """Every request verifies drafts across a chunk boundary: once for each place the boundary may fall, then all mixed.

    A window of 1 + k tokens can be cut after 1 .. k tokens. These give two virtual batches per request, 2N in all.
    """
    window = 1 + spec_k
    named = [
        Named(f"verify windows cut {cut}+{window - cut}", _each(load, window, chunk + window - cut))
        for cut in range(1, window)
    ]
    if spec_k > 1 and load.max_num_seqs > 1:
        n = min(load.max_num_seqs, load.max_num_batched_tokens // window)
        seq_lens = tuple(chunk + window - (1 + i % spec_k) for i in range(n))
        named.append(Named("verify windows cut everywhere", Batch((window,) * n, seq_lens)))
    return [n for n in named if may_be_formed(n.batch, load)]


def splits_that_fit(load: Load, spec_k: int, chunk: int) -> list[Named]:
    """Batches cut by chunk boundaries that have at most max_num_seqs virtual batches: what is sized by it is enough."""
    n, window = load.max_num_seqs // 2, 1 + spec_k
    if n == 0:
        return []
    named = []
    if spec_k:
        cut = tuple(chunk + window - (1 + i % spec_k) for i in range(n))
        named.append(Named("some verify windows cut", Batch((window,) * n, cut)))
    # At the end of a page, one past it, at the end of a chunk, one past it; then a prefill cut once.
    ends = (load.block_size, load.block_size + 1, chunk, chunk + 1)
    decodes = tuple(min(ends[i % len(ends)], load.max_model_len) for i in range(load.max_num_seqs - 2))
    tail = min(load.max_num_batched_tokens - len(decodes), load.max_model_len - chunk // 2, chunk)
    batch = Batch((1,) * len(decodes) + (tail,), (*decodes, chunk // 2 + tail))
    named.append(Named("decodes of all lengths and a prefill cut once", batch))
    if spec_k and decodes and window < chunk // 2:
        whole = tuple(chunk + window + i for i in range(len(decodes)))
        tail = min(load.max_num_batched_tokens - window * len(decodes), tail)
        batch = Batch((window,) * len(decodes) + (tail,), (*whole, chunk // 2 + tail))
        named.append(Named("whole verify windows and a prefill cut once", batch))
    return [n for n in named if may_be_formed(n.batch, load)]


def long_prefills(load: Load, spec_k: int, chunk: int) -> list[Named]:
    """Prefills over many chunks, alone and behind as many requests as fit.

    A request of q >= 2 tokens that starts at the last token of a chunk touches 2 + floor((q - 2) / c) chunks, the most
    any start gives.
    """
    tokens, length = load.max_num_batched_tokens, load.max_model_len
    alone = min(tokens, length)
    named = [Named("one prefill from the start", Batch((alone,), (alone,)))]
    late = min(tokens, length - (chunk - 1))
    if late >= 2:
        named.append(Named("one prefill from the last token of a chunk", Batch((late,), (chunk - 1 + late,))))
        for name, size in (("decodes", 1), ("split verify windows", 1 + spec_k)):
            others = min(load.max_num_seqs - 1, (tokens - 2) // size)
            rest = min(tokens - others * size, length - (chunk - 1))
            if others > 0 and (size > 1 or name == "decodes"):
                head = Batch((size,) * others + (rest,), (chunk + (size + 1) // 2,) * others + (chunk - 1 + rest,))
                named.append(Named(f"{name} and a prefill", head))
    return [n for n in named if may_be_formed(n.batch, load)]


def worst(load: Load, spec_k: int, chunk: int) -> list[Named]:
    """All batches that are extreme in some direction, fewest tokens first."""
    named = split_windows(load, spec_k, chunk) + long_prefills(load, spec_k, chunk)
    return sorted(named, key=lambda n: sum(n.batch.query_lens))


def _inside(chunk: int, load: Load, window: int) -> int:
    """A sequence length whose last `window` tokens lie inside one chunk: amid the second one if allowed."""
    room = min(2 * chunk, load.max_model_len) - chunk
    return chunk + window + (room - window) // 2 if room >= window else window


def _each(load: Load, query_len: int, seq_len: int) -> Batch:
    """As many equal requests as the scheduler may put into one step."""
    n = min(load.max_num_seqs, load.max_num_batched_tokens // query_len)
    return Batch((query_len,) * n, (seq_len,) * n)
