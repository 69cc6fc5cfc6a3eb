"""The reference semantics, against the definition spelled out token by token, and figures worked out by hand."""

from itertools import product

import numpy as np
import pytest

from cases import reference
from cases.patterns import Chunked, Full


def by_definition(query_len: int, seq_len: int, chunk: int) -> list[set[int]]:
    """For each query token, every position it attends to: same chunk, not later than itself."""
    return [
        {j for j in range(seq_len) if j // chunk == i // chunk and j <= i} for i in range(seq_len - query_len, seq_len)
    ]


SMALL = [(q, s, c) for c, s in product((1, 2, 3, 4, 8), range(1, 20)) for q in range(1, s + 1)]


def test_reach_is_the_definition_for_all_small_requests() -> None:
    for query_len, seq_len, chunk in SMALL:
        found = reference.reach(np.array([query_len]), np.array([seq_len]), Chunked(chunk))
        runs = [set(range(f, f + n)) for f, n in zip(found.first.tolist(), found.count.tolist(), strict=True)]
        assert runs == by_definition(query_len, seq_len, chunk), (query_len, seq_len, chunk)


def test_where_a_token_sees_everything_a_request_is_one_row() -> None:
    for query_len, seq_len in dict.fromkeys((q, s) for q, s, _ in SMALL):
        found = reference.reach(np.array([query_len]), np.array([seq_len]), Full())
        runs = [set(range(f, f + n)) for f, n in zip(found.first.tolist(), found.count.tolist(), strict=True)]
        assert runs == [set(range(i + 1)) for i in range(seq_len - query_len, seq_len)]
        rows = reference.rows(np.array([query_len]), np.array([seq_len]), Full())
        assert (rows.query_lens.tolist(), rows.key_lens.tolist(), rows.first.tolist()) == ([query_len], [seq_len], [0])


def test_rows_are_the_chunks_that_a_query_touches() -> None:
    for query_len, seq_len, chunk in SMALL:
        chunks = [i // chunk for i in range(seq_len - query_len, seq_len)]
        rows = reference.rows(np.array([query_len]), np.array([seq_len]), Chunked(chunk))
        touched = sorted(set(chunks))
        assert rows.query_lens.tolist() == [chunks.count(t) for t in touched]
        assert rows.key_lens.tolist() == [min((t + 1) * chunk, seq_len) - t * chunk for t in touched]
        assert reference.virtual_batches(np.array([query_len]), np.array([seq_len]), Chunked(chunk)) == len(touched)


@pytest.mark.parametrize(
    ("query_lens", "seq_lens", "chunk", "virtual_batches"),
    [
        # the example in the comments of vLLM's splitter: [2, 2, 1, 4, 4, 1, 4, 1] query tokens
        ([4, 10, 5], [6, 17, 9], 4, 8),
        # the public report's workload: one step of 34,000 tokens at a chunk of 8192 (vllm#49980)
        ([34_000], [34_000], 8192, 5),
        # an aligned prefill of a whole chunk, and the same behind a prefix of 100 tokens
        ([8192], [8192], 8192, 1),
        ([8192], [8292], 8192, 2),
        # every verify window of 1 + 3 tokens cut by a boundary: 2N
        ([4] * 64, [66] * 64, 64, 128),
    ],
)
def test_virtual_batches_of_published_examples(
    query_lens: list[int], seq_lens: list[int], chunk: int, virtual_batches: int
) -> None:
    assert reference.virtual_batches(np.array(query_lens), np.array(seq_lens), Chunked(chunk)) == virtual_batches


def test_rows_of_the_example_in_vllms_comments() -> None:
    rows = reference.rows(np.array([4, 10, 5]), np.array([6, 17, 9]), Chunked(4))
    assert rows.query_lens.tolist() == [2, 2, 1, 4, 4, 1, 4, 1]
    assert rows.key_lens.tolist() == [4, 2, 4, 4, 4, 1, 4, 1]


def test_slots_follow_the_block_table() -> None:
    # pages of 2: key 3 is the second entry of page 1, which the table puts in physical page 5
    assert reference.slots(np.array([7, 5, 9]), np.arange(1, 5), 2).tolist() == [15, 10, 11, 18]


def test_draft_mask_of_three_is_lower_triangular() -> None:
    assert reference.draft_mask(3).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
