"""Which buffers a deployment cannot overflow, by what a cell reports: against all small loads."""

from itertools import product

import pytest

from cases import bounds
from cases.bounds import Limits
from cases.cell import Cell, Load
from cases.needs import bounds_of
from cases.patterns import Chunked


def cell(backend: str, n: int, t: int, length: int, chunk: int, k: int) -> Cell:
    load = Load("x", n, t, length, block_size=1, num_heads=8, num_kv_heads=2, head_size=128, dtype="bfloat16")
    return Cell("x", "0.32.0", backend, "sm90", True, k, chunk, load, "emulated")


SMALL = list(product((1, 2, 3, 5), (1, 2, 3, 4, 7, 12, 24), (2, 3, 4, 5, 8, 9, 17, 33), (1, 2, 4, 8, 16)))


@pytest.mark.parametrize("k", [0, 1, 3, 7])
def test_chunks_add_nothing_exactly_where_a_row_for_each_request_is_enough(k: int) -> None:
    """Buffers with max_num_seqs rows, as the releases have them, overflow for some batch or they do not."""
    both = set()
    for n, t, length, chunk in SMALL:
        found = bounds_of(cell("flashinfer", n, t, length, chunk, k))
        limits = Limits(n, t, length - 1)
        rows, mask = bounds.virtual_batches(limits, Chunked(chunk)), bounds.mask_rows(limits, k, Chunked(chunk))
        assert found["paged_kv_indptr"][0] == found["cum_seq_lens_kv"][0] == rows + 1
        for name in ("paged_kv_indptr", "paged_kv_last_page_len", "cum_seq_lens_kv"):
            worst, without = found[name]
            assert (worst <= without) is (rows <= n), (n, t, length, chunk)
            both.add(worst <= without)
        assert ("xqa_draft_mask" in found) is (k > 0)
        if k:
            worst, without = found["xqa_draft_mask"]
            assert (worst <= without) is (mask <= n), (n, t, length, chunk)
    assert both == {True, False}


def test_each_backend_reports_the_buffers_that_have_an_entry_for_each_row() -> None:
    assert set(bounds_of(cell("flex_attention", 2, 8, 16, 4, 0))) == {
        "persistent_physical_to_logical",
        "persistent_seq_lens",
        "persistent_offset_tensor",
        "persistent_query_start_loc",
    }
    assert bounds_of(cell("flash_attn", 2, 8, 16, 4, 0)) == {}


def test_the_load_that_needs_no_more_than_its_requests() -> None:
    """N = 16, T = L = 8192 and chunks of 8192: no sequence reaches a second chunk."""
    found = bounds_of(cell("flashinfer", 16, 8192, 8192, 8192, 3))
    assert found["paged_kv_indptr"] == (17, 17)
    assert found["xqa_draft_mask"] == (16, 16)
    assert bounds_of(cell("flashinfer", 16, 8192, 8194, 8192, 3))["paged_kv_indptr"] > (17, 17)
