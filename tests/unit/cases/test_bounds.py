"""The closed formulas, against the maximum over all batches that may be formed.

All small loads: a table over (requests, tokens) of the most that their requests can need, each request measured by the
reference. The table is itself checked against every batch there is, where that is few enough.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations_with_replacement, permutations, product, takewhile

import numpy as np
import pytest

from cases import bounds, reference
from cases.bounds import Limits

N, T, C, S = 4, 24, 8, 32
NONE = -(10**6)
"""Less than any sum: what no request can be."""

Requests = list[tuple[int, int]]


@cache
def rows(query_len: int, seq_len: int, chunk: int) -> reference.Rows:
    return reference.rows(np.array([query_len]), np.array([seq_len]), chunk)


def table(longest: int, value: Callable[[int, int], int]) -> np.ndarray:
    """[N + 1, T + 1]: the most that at most n requests with at most t tokens are worth together."""
    best = [max((value(q, s) for s in range(q, longest + 1)), default=NONE) for q in range(1, T + 1)]
    most = np.full((N + 1, T + 1), NONE)
    most[0] = 0
    for n, t in product(range(1, N + 1), range(T + 1)):
        most[n, t] = max(most[n - 1, t], *(most[n - 1, t - q] + best[q - 1] for q in range(1, t + 1)), NONE)
    return most


def found(formula: Callable[[Limits], int], longest: int) -> np.ndarray:
    return np.array([[formula(Limits(n, t, longest)) for t in range(1, T + 1)] for n in range(1, N + 1)])


def pages_of(query_len: int, seq_len: int, chunk: int, page: int) -> int:
    return int(reference.pages(rows(query_len, seq_len, chunk).key_lens, page).sum())


@pytest.mark.parametrize("chunk", range(1, C + 1))
def test_virtual_batches_are_the_most_there_are(chunk: int) -> None:
    for longest in range(1, S + 1):
        most = table(longest, lambda q, s: len(rows(q, s, chunk).query_lens))
        assert (found(lambda limits: bounds.virtual_batches(limits, chunk), longest) == most[1:, 1:]).all(), longest


@pytest.mark.parametrize(("chunk", "page"), [(c, p) for c in range(1, C + 1) for p in range(1, c + 1) if c % p == 0])
def test_pages_are_the_most_there_are(chunk: int, page: int) -> None:
    for longest in range(1, S + 1):
        most = table(longest, lambda q, s: pages_of(q, s, chunk, page))
        assert (found(lambda limits: bounds.pages(limits, chunk, page), longest) == most[1:, 1:]).all(), longest


@pytest.mark.parametrize("chunk", range(1, C + 1))
def test_mask_rows_are_the_most_there_are(chunk: int) -> None:
    for longest, spec_k in product(range(1, S + 1), (1, 2, 3, 5, 7)):

        def of_one_length(w: int, longest: int = longest) -> np.ndarray:
            def value(q: int, s: int) -> int:
                lens = rows(q, s, chunk).query_lens
                return len(lens) if (lens == w).all() else NONE

            return table(longest, value)

        most = np.max([windows(chunk, longest, w, of_one_length) for w in range(2, 2 + spec_k)], axis=0)
        formula = found(lambda limits, k=spec_k: bounds.mask_rows(limits, k, chunk), longest)
        assert (formula == np.maximum(most, 0)[1:, 1:]).all(), (longest, spec_k)


_WINDOWS: dict[tuple[int, int, int], np.ndarray] = {}


def windows(chunk: int, longest: int, w: int, make: Callable[[int], np.ndarray]) -> np.ndarray:
    """The table of a window length: the same for every k."""
    if (chunk, longest, w) not in _WINDOWS:
        _WINDOWS[chunk, longest, w] = make(w)
    return _WINDOWS[chunk, longest, w]


def test_tokens_are_the_most_there_are() -> None:
    for longest in range(1, S + 1):
        assert (found(bounds.tokens, longest) == table(longest, lambda q, s: q)[1:, 1:]).all()


def every_batch(limits: Limits) -> Iterator[Requests]:
    """Every multiset of requests that keeps the limits: their order changes none of the sums."""
    requests = [(q, s) for s in range(1, limits.longest + 1) for q in range(1, s + 1)]
    for n in range(1, limits.max_num_seqs + 1):
        for chosen in combinations_with_replacement(requests, n):
            if sum(q for q, _ in chosen) <= limits.max_num_batched_tokens:
                yield list(chosen)


def query_lens_of_rows(batch: Requests, chunk: int) -> list[int]:
    """Token by token: a row ends where a request or a chunk does."""
    places = [(r, i // chunk) for r, (q, s) in enumerate(batch) for i in range(s - q, s)]
    return [places.count(place) for place in dict.fromkeys(places)]


def pages_of_rows(batch: Requests, chunk: int, page: int) -> int:
    """Key by key: a row needs the pages of all keys of its chunk up to its last token."""
    return sum(
        len({key // page for key in range(i // chunk * chunk, i + 1)})
        for q, s in batch
        for i in range(s - q, s)
        if i == s - 1 or (i + 1) % chunk == 0  # the last token of a row
    )


def rows_of_a_uniform_mask(batch: Requests, spec_k: int, chunk: int) -> int:
    """In the best order: requests of at most 1 + k tokens stand first, and the rows before the first longer one decode.

    0 if these have not all one length, or one token.
    """
    short = [request for request in batch if request[0] <= 1 + spec_k]
    most = 0
    for rest in permutations(request for request in batch if request[0] > 1 + spec_k):
        decodes = list(takewhile(lambda q: q <= 1 + spec_k, query_lens_of_rows([*short, *rest], chunk)))
        if len(set(decodes)) == 1 and decodes[0] > 1:
            most = max(most, len(decodes))
    return most


@pytest.mark.parametrize(("n", "t", "longest"), [(1, 7, 7), (2, 6, 7), (3, 6, 5), (4, 4, 4)])
def test_the_formulas_hold_for_every_batch_and_are_attained(n: int, t: int, longest: int) -> None:
    limits = Limits(n, t, longest)
    batches = list(every_batch(limits))
    for chunk in (1, 2, 3, 4):
        split = [query_lens_of_rows(batch, chunk) for batch in batches]
        assert bounds.virtual_batches(limits, chunk) == max(map(len, split))
        for page in (p for p in range(1, chunk + 1) if chunk % p == 0):
            assert bounds.pages(limits, chunk, page) == max(pages_of_rows(batch, chunk, page) for batch in batches)
        for k in (1, 2, 3):
            masks = (rows_of_a_uniform_mask(batch, k, chunk) for batch in batches)
            assert bounds.mask_rows(limits, k, chunk) == max(masks)
    assert bounds.tokens(limits) == max(sum(q for q, _ in batch) for batch in batches)


def test_the_published_bound_is_a_bound_and_rarely_attained() -> None:
    """vllm#50022 sizes for min(2N + ceil(T / c), T): never too small, and one of its own figures by hand."""
    for n, t, chunk, longest in product(range(1, N + 1), range(1, T + 1), range(1, C + 1), range(1, S + 1)):
        published = min(2 * n + -(-t // chunk), t)
        exact = bounds.virtual_batches(Limits(n, t, longest), chunk)
        assert exact <= published
        if t > 2 * n and chunk > 1:
            assert exact < published
    # 36,000 tokens of one request from the last token of a chunk: 1 + 4 * 8192 + 3231, six rows; the bound says seven
    assert bounds.virtual_batches(Limits(1, 36_000, 1 << 20), 8192) == 6


def test_a_longest_sequence_that_generates_leaves_room_for_a_token() -> None:
    from tests.unit.cases.test_batches import load

    assert Limits.of(load(4, 512, 4096)) == Limits(4, 512, 4095)
