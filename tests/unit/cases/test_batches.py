"""The worst batches: each may be scheduled, and none that may be scheduled is worse."""

from functools import lru_cache
from itertools import product

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from cases import batches, bounds, reference
from cases.bounds import Limits
from cases.cell import Load
from cases.patterns import Chunked, Full
from cases.verdicts import Batch


def load(max_num_seqs: int, tokens: int, length: int, block_size: int = 1) -> Load:
    return Load("test", max_num_seqs, tokens, length, block_size, 8, 2, 128, "bfloat16")


def rows(batch: Batch, chunk: int) -> int:
    return reference.virtual_batches(np.array(batch.query_lens), np.array(batch.seq_lens), Chunked(chunk))


LOADS = [load(1, 36000, 36000), load(4, 2048, 16384), load(256, 8192, 131072), load(2, 8, 16), load(1, 1, 2)]


@pytest.mark.parametrize("deployed", LOADS)
@pytest.mark.parametrize("chunk", [4, 64, 8192])
@pytest.mark.parametrize("spec_k", [0, 1, 3, 7])
def test_every_batch_may_be_scheduled(deployed: Load, chunk: int, spec_k: int) -> None:
    named = batches.within_capacity(deployed, spec_k, Chunked(chunk)) + batches.worst(deployed, spec_k, Chunked(chunk))
    assert named
    assert all(batches.may_be_formed(n.batch, deployed) for n in named)


@pytest.mark.parametrize("deployed", LOADS)
@pytest.mark.parametrize("chunk", [4, 64, 8192])
@pytest.mark.parametrize("spec_k", [0, 1, 3, 7])
def test_batches_within_capacity_have_a_row_per_request(deployed: Load, chunk: int, spec_k: int) -> None:
    for n in batches.within_capacity(deployed, spec_k, Chunked(chunk)):
        assert rows(n.batch, chunk) == len(n.batch.query_lens), n.name


@pytest.mark.parametrize("spec_k", [1, 2, 3, 5, 7])
def test_split_windows_are_cut_at_every_place(spec_k: int) -> None:
    window = 1 + spec_k
    cuts = {
        tuple(of_one(n.batch.query_lens[0], n.batch.seq_lens[0], 64, 1)[0])
        for n in batches.split_windows(load(1, 1000, 1000), spec_k, Chunked(64))
    }
    assert cuts == {(cut, window - cut) for cut in range(1, window)}


@pytest.mark.parametrize("chunk", range(1, 9))
def test_the_most_of_everything_is_attained_in_all_small_loads(chunk: int) -> None:
    """The same range as in test_bounds.py, which proves that no batch needs more."""
    pages = [p for p in range(1, chunk + 1) if chunk % p == 0]
    for n, t, longest, page in product(range(1, 5), range(1, 25), range(1, 33), pages):
        for spec_k in (1, 3, 7) if page == 1 else (0,):
            deployed = load(n, t, longest + 1, page)
            assert_attained(deployed, spec_k, chunk, batches.most(deployed, spec_k, Chunked(chunk)))


@pytest.mark.parametrize("page", [1, 3, 16])
def test_the_most_of_everything_is_attained_where_a_token_sees_everything(page: int) -> None:
    for n, t, longest, spec_k in product(range(1, 5), range(1, 25), range(1, 33), (0, 1, 3)):
        deployed = load(n, t, longest + 1, page)
        named, limits = batches.worst(deployed, spec_k, Full()), Limits.of(deployed)
        assert all(batches.may_be_formed(one.batch, deployed) for one in named)
        assert max(len(one.batch.seq_lens) for one in named) == bounds.virtual_batches(limits, Full())
        pages = max(sum(-(-s // page) for s in one.batch.seq_lens) for one in named)
        assert pages == bounds.pages(limits, Full(), page)


LARGE = hypothesis.settings(
    max_examples=300, derandomize=True, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
)


@st.composite
def deployments(draw: st.DrawFn) -> tuple[Load, int, int]:
    """Loads that people could write, with their limits near each other and near a chunk more often than by chance."""
    page = draw(st.sampled_from([1, 16, 32, 64, 128]))
    chunk = page * draw(st.integers(1, 64) | st.just(8192 // page))
    near = st.integers(-2, 2)
    length = max(2, draw(st.integers(2, 40_000) | st.builds(lambda m, d: m * chunk + d, st.integers(1, 4), near)))
    tokens = max(1, draw(st.integers(1, 40_000) | st.builds(lambda m, d: m * length + d, st.integers(1, 2), near)))
    return load(draw(st.integers(1, 300)), tokens, length, page), draw(st.integers(0, 40)), chunk


@LARGE
@hypothesis.given(deployments())
def test_the_most_of_everything_is_attained_in_any_load(deployed: tuple[Load, int, int]) -> None:
    assert_attained(*deployed, batches.worst(deployed[0], deployed[1], Chunked(deployed[2])))


@LARGE
@hypothesis.given(deployments())
def test_every_batch_may_be_scheduled_in_any_load(deployed: tuple[Load, int, int]) -> None:
    for family in (batches.within_capacity, batches.splits_that_fit, batches.worst, batches.most_mask_rows):
        for smaller in (deployed[0], batches.few_requests(deployed[0]), batches.short_steps(deployed[0])):
            named = family(smaller, deployed[1], Chunked(deployed[2]))
            assert all(batches.may_be_formed(n.batch, deployed[0]) for n in named)
            assert len({n.batch for n in named}) == len({n.name for n in named}) == len(named)


def assert_attained(deployed: Load, spec_k: int, chunk: int, named: list[batches.Named]) -> None:
    limits, at = Limits.of(deployed), (deployed, spec_k, chunk)
    assert all(batches.may_be_formed(n.batch, deployed) for n in named), at
    lens, pages = zip(*(needed(n.batch, chunk, deployed.block_size) for n in named), strict=True)
    assert max(map(len, lens)) == bounds.virtual_batches(limits, Chunked(chunk)), at
    assert max(pages) == bounds.pages(limits, Chunked(chunk), deployed.block_size), at
    masks = [len(rows) for rows in lens if len(set(rows)) == 1 and 2 <= rows[0] <= 1 + spec_k]
    assert max(masks, default=0) == bounds.mask_rows(limits, spec_k, Chunked(chunk)), at


def needed(batch: Batch, chunk: int, page: int) -> tuple[list[int], int]:
    """Query tokens of each row, and pages over all rows."""
    requests = [of_one(q, s, chunk, page) for q, s in zip(batch.query_lens, batch.seq_lens, strict=True)]
    return [q for lens, _ in requests for q in lens], sum(pages for _, pages in requests)


@lru_cache(maxsize=1 << 16)
def of_one(query_len: int, seq_len: int, chunk: int, page: int) -> tuple[list[int], int]:
    rows = reference.rows(np.array([query_len]), np.array([seq_len]), Chunked(chunk))
    return rows.query_lens.tolist(), int(reference.pages(rows.key_lens, page).sum())


def test_a_request_from_the_last_token_of_a_chunk_touches_two_and_a_bit() -> None:
    for q, chunk in product(range(2, 40), (2, 3, 4, 8)):
        most = max(rows(Batch((q,), (start + q,)), chunk) for start in range(2 * chunk))
        assert most == 2 + (q - 2) // chunk
