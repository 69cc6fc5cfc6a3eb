"""Cuts a batch that shows an overflow down to a smallest one that still does."""

from collections.abc import Callable

from cases.verdicts import Batch, Overflow


def smallest(overflow: Overflow, border: int, shows: Callable[[Batch], Overflow | None]) -> Overflow:
    """The overflow for a batch cut down in one direction after the other; `shows` looks for it in another batch.

    `border`: tokens from one place where a row may end to the next. Fewer requests, fewer query tokens (a query's
    distance from such a place is what matters: its start is kept, then its end), shorter sequences. Each direction is
    followed in steps that halve until a step of one no longer shows the overflow. What is short of rows mostly shows
    with requests of two tokens that a boundary cuts: if so, that is the start.
    """
    half = overflow.allocated // 2
    for requests in range(max(half, 1), half + 2):
        fewer = Batch((2,) * requests, (border + 1,) * requests)
        if sum(fewer.query_lens) < sum(overflow.batch.query_lens):
            overflow = shows(fewer) or overflow
    for size, cut in (
        (len, lambda requests, n: requests[n:]),
        (_longest, lambda requests, n: _trimmed(requests, n, keep_start=True)),
        (_longest, lambda requests, n: _trimmed(requests, n, keep_start=False)),
    ):
        step = size(_requests(overflow.batch)) - 1
        while step > 0:
            requests = _requests(overflow.batch)
            found = shows(_batch(cut(requests, step))) if step < size(requests) else None
            overflow, step = (found, step) if found else (overflow, step // 2)
    nearer = [(q, s - (s - q) // border * border) for q, s in _requests(overflow.batch)]
    return shows(_batch(nearer)) or overflow


def _longest(requests: list[tuple[int, int]]) -> int:
    return max(q for q, _ in requests)


def _trimmed(requests: list[tuple[int, int]], n: int, *, keep_start: bool) -> list[tuple[int, int]]:
    """The requests with no query longer than the longest less n."""
    most = _longest(requests) - n
    return [(min(q, most), s - keep_start * max(q - most, 0)) for q, s in requests]


def _requests(batch: Batch) -> list[tuple[int, int]]:
    return list(zip(batch.query_lens, batch.seq_lens, strict=True))


def _batch(requests: list[tuple[int, int]]) -> Batch:
    return Batch(tuple(q for q, _ in requests), tuple(s for _, s in requests))
