"""What a scheduler may form, and the order in which vLLM puts the requests of a step."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cases.bounds import Limits
from cases.cell import Load
from cases.patterns import Pattern
from cases.verdicts import Batch

Requests = list[tuple[int, int]]
"""Per request: tokens scheduled in this step, and tokens in the sequence after it."""

FEW, SHORT = 8, 1024
"""What a row says does not depend on how many requests or tokens stand before it: more would only take longer."""


@dataclass(frozen=True)
class Named:
    """A batch and what it is for."""

    name: str
    batch: Batch


def border_of(load: Load, pattern: Pattern) -> int:
    """Tokens from one place where a row may end to the next, in the sequences of a load."""
    return pattern.border(Limits.of(load).longest)


def few_requests(load: Load) -> Load:
    """The load with no more requests than it takes to mix them."""
    return replace(load, max_num_seqs=min(load.max_num_seqs, FEW))


def short_steps(load: Load) -> Load:
    """The load with few requests, and no more tokens in a step than it takes to cut them often."""
    return replace(few_requests(load), max_num_batched_tokens=min(load.max_num_batched_tokens, SHORT))


def may_be_formed(batch: Batch, load: Load) -> bool:
    """Whether a scheduler with this load's limits may form the batch (see cases/bounds.py for what is assumed)."""
    limits = Limits.of(load)
    return (
        0 < len(batch.query_lens) <= limits.max_num_seqs
        and sum(batch.query_lens) <= limits.max_num_batched_tokens
        and all(0 < q <= s <= limits.longest for q, s in zip(batch.query_lens, batch.seq_lens, strict=True))
    )


def formed(named: Iterable[Named], load: Load) -> list[Named]:
    """Those that may be formed, each batch once: the first name stays."""
    kept: dict[Batch, Named] = {}
    for n in named:
        if may_be_formed(n.batch, load):
            kept.setdefault(n.batch, n)
    return list(kept.values())


def in_order(requests: Iterable[tuple[int, int]], spec_k: int) -> Batch:
    """The batch with its requests in vLLM's order: decodes and short extends, then long extends, then new prompts.

    Source (0.32.0): `reorder_batch_to_split_decodes_and_prefills` of `v1/attention/backends/utils.py`; the V2 model
    runner's `sort_batch_req_ids` also puts whatever has more than 1 + k tokens last. Otherwise the given order stays.
    """

    def region(request: tuple[int, int]) -> int:
        tokens, length = request
        return 2 if length == tokens else tokens > 1 + spec_k

    return of(sorted(requests, key=region))


def of(requests: Iterable[tuple[int, int]]) -> Batch:
    """The batch of these requests, as they stand."""
    query_lens, seq_lens = zip(*requests, strict=True)
    return Batch(query_lens, seq_lens)


def each(load: Load, query_len: int, seq_len: int) -> Batch:
    """As many equal requests as the scheduler may put into one step."""
    n = min(load.max_num_seqs, load.max_num_batched_tokens // query_len)
    return Batch((query_len,) * n, (seq_len,) * n)
