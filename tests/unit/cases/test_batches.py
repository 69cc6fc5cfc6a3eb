"""The worst batches: each may be scheduled, and none that may be scheduled is worse."""

from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from cases import batches, reference
from cases.cell import Load
from cases.verdicts import Batch


def load(max_num_seqs: int, tokens: int, length: int, block_size: int = 1) -> Load:
    return Load("test", max_num_seqs, tokens, length, block_size, 8, 2, 128, "bfloat16")


def rows(batch: Batch, chunk: int) -> int:
    return reference.virtual_batches(np.array(batch.query_lens), np.array(batch.seq_lens), chunk)


LOADS = [load(1, 36000, 36000), load(4, 2048, 16384), load(256, 8192, 131072), load(2, 8, 16), load(1, 1, 1)]


@pytest.mark.parametrize("deployed", LOADS)
@pytest.mark.parametrize("chunk", [4, 64, 8192])
@pytest.mark.parametrize("spec_k", [0, 1, 3, 7])
def test_every_batch_may_be_scheduled(deployed: Load, chunk: int, spec_k: int) -> None:
    named = batches.within_capacity(deployed, spec_k, chunk) + batches.worst(deployed, spec_k, chunk)
    assert named
    assert all(batches.may_be_formed(n.batch, deployed) for n in named)


@pytest.mark.parametrize("deployed", LOADS)
@pytest.mark.parametrize("chunk", [4, 64, 8192])
@pytest.mark.parametrize("spec_k", [0, 1, 3, 7])
def test_batches_within_capacity_have_a_row_per_request(deployed: Load, chunk: int, spec_k: int) -> None:
    for n in batches.within_capacity(deployed, spec_k, chunk):
        assert rows(n.batch, chunk) == len(n.batch.query_lens), n.name


@pytest.mark.parametrize("spec_k", [1, 2, 3, 5, 7])
def test_split_windows_are_cut_at_every_place(spec_k: int) -> None:
    window = 1 + spec_k
    cuts = {
        tuple(reference.rows(np.array(n.batch.query_lens[:1]), np.array(n.batch.seq_lens[:1]), 64).query_lens.tolist())
        for n in batches.split_windows(load(1, 1000, 1000), spec_k, 64)
    }
    assert cuts == {(cut, window - cut) for cut in range(1, window)}


def brute_force(deployed: Load, chunk: int) -> int:
    """The most virtual batches of all batches that may be scheduled."""
    requests = [
        (q, s)
        for s in range(1, deployed.max_model_len + 1)
        for q in range(1, min(s, deployed.max_num_batched_tokens) + 1)
    ]
    # only the number of rows and tokens of a request count: keep the best request of each token count
    best: dict[int, int] = {}
    for q, s in requests:
        best[q] = max(best.get(q, 0), rows(Batch((q,), (s,)), chunk))
    return max(
        sum(best[q] for q in chosen)
        for n in range(1, deployed.max_num_seqs + 1)
        for chosen in combinations_with_replacement(best, n)
        if sum(chosen) <= deployed.max_num_batched_tokens
    )


def test_one_request_never_has_more_rows_than_the_worst_batches_show() -> None:
    for tokens, length, chunk in product((1, 2, 3, 5, 9, 16, 24), (1, 2, 7, 16, 32), (2, 3, 4, 8)):
        if tokens > length:
            continue
        deployed = load(1, tokens, length)
        shown = [rows(n.batch, chunk) for n in batches.worst(deployed, 0, chunk)]
        assert max(shown) == brute_force(deployed, chunk), (tokens, length, chunk)


def test_a_request_from_the_last_token_of_a_chunk_touches_two_and_a_bit() -> None:
    for q, chunk in product(range(2, 40), (2, 3, 4, 8)):
        most = max(rows(Batch((q,), (start + q,)), chunk) for start in range(2 * chunk))
        assert most == 2 + (q - 2) // chunk
