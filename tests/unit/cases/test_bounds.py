"""The closed formulas, against the maximum over all batches that may be formed.

All small loads: a table over (requests, tokens) of the most that their requests can need, each request measured by the
reference. The table is itself checked against every batch there is, where that is few enough.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations_with_replacement, permutations, product, takewhile
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cases import bounds, reference
from cases.bounds import Limits
from cases.patterns import Chunked, Full

N, T, C, S = 4, 24, 8, 32
NONE = -(10**6)
"""Less than any sum: what no request can be."""

Requests = list[tuple[int, int]]


@cache
def rows(query_len: int, seq_len: int, chunk: int) -> reference.Rows:
    return reference.rows(np.array([query_len]), np.array([seq_len]), Chunked(chunk))


def row_count(query_len: int, seq_len: int, chunk: int) -> int:
    return len(rows(query_len, seq_len, chunk).query_lens)


def pages_of(query_len: int, seq_len: int, chunk: int, page: int) -> int:
    return int(reference.pages(rows(query_len, seq_len, chunk).key_lens, page).sum())


def windows_of(query_len: int, seq_len: int, chunk: int, window: int) -> int:
    lens = rows(query_len, seq_len, chunk).query_lens
    return len(lens) if (lens == window).all() else NONE


@cache
def most(value: Callable[..., int], longest: int, *of: int) -> np.ndarray:
    """[N, T]: the most that 1 .. n requests with at most t tokens are worth together."""
    best = [max((value(q, s, *of) for s in range(q, longest + 1)), default=NONE) for q in range(1, T + 1)]
    table = np.full((N + 1, T + 1), NONE)
    table[0] = 0
    for n, t in product(range(1, N + 1), range(T + 1)):
        table[n, t] = max(table[n - 1, t], *(table[n - 1, t - q] + best[q - 1] for q in range(1, t + 1)), NONE)
    return table[1:, 1:]


def by(formula: Callable[..., int], longest: int, *of: Any) -> np.ndarray:
    return np.array([[formula(Limits(n, t, longest), *of) for t in range(1, T + 1)] for n in range(1, N + 1)])


CHUNKS = range(1, C + 1)
PAGES = [(chunk, page) for chunk in CHUNKS for page in CHUNKS if chunk % page == 0]


def wrong_virtual_batches(at: ModuleType, chunk: int) -> list[int]:
    """The longest sequences for which the formula is not the maximum, for some N and T."""
    return [
        s for s in range(1, S + 1) if (by(at.virtual_batches, s, Chunked(chunk)) != most(row_count, s, chunk)).any()
    ]


def wrong_pages(at: ModuleType, chunk: int, page: int) -> list[int]:
    return [
        s for s in range(1, S + 1) if (by(at.pages, s, Chunked(chunk), page) != most(pages_of, s, chunk, page)).any()
    ]


def wrong_mask_rows(at: ModuleType, chunk: int) -> list[tuple[int, int]]:
    found = []
    for s, k in product(range(1, S + 1), (1, 2, 3, 5, 7)):
        wanted = np.max([most(windows_of, s, chunk, window) for window in range(2, 2 + k)], axis=0).clip(min=0)
        if (by(at.mask_rows, s, k, Chunked(chunk)) != wanted).any():
            found.append((s, k))
    return found


@pytest.mark.parametrize("chunk", CHUNKS)
def test_virtual_batches_are_the_most_there_are(chunk: int) -> None:
    assert not wrong_virtual_batches(bounds, chunk)


@pytest.mark.parametrize(("chunk", "page"), PAGES)
def test_pages_are_the_most_there_are(chunk: int, page: int) -> None:
    assert not wrong_pages(bounds, chunk, page)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_mask_rows_are_the_most_there_are(chunk: int) -> None:
    assert not wrong_mask_rows(bounds, chunk)


def test_tokens_are_the_most_there_are() -> None:
    for longest in range(1, S + 1):
        assert (by(bounds.tokens, longest) == most(lambda q, s: q, longest)).all()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("limits.longest <= border:", "limits.longest < border:"),
        ("(left - second) // page", "-(-(left - second) // page)"),
        ("(left - second) // page", "left // page"),
        ("- first - 1))", "- first))"),
        ("second = min(requests, left)", "second = requests"),
        ("first = -(-min(border, limits.longest) // page)", "first = border // page"),
        ("further = min((left - second) // page,", "further = max((left - second) // page,"),
        ("return requests * (first + 1) - (requests - second) + further", "return min(2 * n + -(-t // page), t)"),
        ("longest >= border + 2", "longest > border"),
        ("n * (2 if", "n * (1 if"),
        ("2 <= border <= 1 + spec_k", "2 <= border <= spec_k"),
        ("n * (longest // border))", "n * -(-longest // border))"),
    ],
)
def test_a_wrong_formula_is_noticed(old: str, new: str) -> None:
    """Each is a small fault in a formula; the one with the published bound has it in place of ours."""
    source = inspect.getsource(bounds)
    assert source.count(old) == 1
    changed = ModuleType("changed")
    names = "n, t = limits.max_num_seqs, limits.max_num_batched_tokens; "
    exec(source.replace(old, names * new.startswith("return") + new), vars(changed))
    assert (
        any(wrong_virtual_batches(changed, chunk) for chunk in CHUNKS)
        or any(wrong_pages(changed, *of) for of in PAGES)
        or any(wrong_mask_rows(changed, chunk) for chunk in CHUNKS)
    )


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
        assert bounds.virtual_batches(limits, Chunked(chunk)) == max(map(len, split))
        for page in (p for p in range(1, chunk + 1) if chunk % p == 0):
            assert bounds.pages(limits, Chunked(chunk), page) == max(
                pages_of_rows(batch, chunk, page) for batch in batches
            )
        for k in (1, 2, 3):
            masks = (rows_of_a_uniform_mask(batch, k, chunk) for batch in batches)
            assert bounds.mask_rows(limits, k, Chunked(chunk)) == max(masks)
    assert bounds.tokens(limits) == max(sum(q for q, _ in batch) for batch in batches)


@pytest.mark.parametrize(("n", "t", "longest"), [(1, 7, 7), (2, 6, 7), (3, 6, 5), (4, 4, 4)])
def test_where_a_token_sees_everything_a_request_is_a_row_with_all_its_pages(n: int, t: int, longest: int) -> None:
    limits = Limits(n, t, longest)
    batches = list(every_batch(limits))
    assert bounds.virtual_batches(limits, Full()) == max(map(len, batches))
    for page in range(1, longest + 2):  # vLLM splits nothing: any page will do
        most_pages = max(sum(-(-s // page) for _, s in batch) for batch in batches)
        assert bounds.pages(limits, Full(), page) == most_pages
    for k in (1, 2, 3):
        masks = (rows_of_a_uniform_mask(batch, k, longest) for batch in batches)  # no row ends in a sequence
        assert bounds.mask_rows(limits, k, Full()) == max(masks)


def test_the_published_bound_is_a_bound_and_rarely_attained() -> None:
    """vllm#50022 sizes for min(2N + ceil(T / c), T): never too small, and one of its own figures by hand."""
    for n, t, chunk, longest in product(range(1, N + 1), range(1, T + 1), range(1, C + 1), range(1, S + 1)):
        published = min(2 * n + -(-t // chunk), t)
        exact = bounds.virtual_batches(Limits(n, t, longest), Chunked(chunk))
        assert exact <= published
        if t > 2 * n and chunk > 1:
            assert exact < published
    # 36,000 tokens of one request from the last token of a chunk: 1 + 4 * 8192 + 3231, six rows; the bound says seven
    assert bounds.virtual_batches(Limits(1, 36_000, 1 << 20), Chunked(8192)) == 6


def test_a_longest_sequence_that_generates_leaves_room_for_a_token() -> None:
    from tests.unit.cases.test_batches import load

    assert Limits.of(load(4, 512, 4096)) == Limits(4, 512, 4095)
