"""The interpreter of metadata, on steps small enough to work out by hand; numpy arrays stand for tensors.

Pages hold 2 tokens. The cache's value in slot s is 10 * s, and queries and keys are zero unless a test says otherwise,
so that an output is the mean of the slots seen, times ten.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cases import interpreter, reference
from cases.patterns import Chunked

NAN = float("nan")


def of_slots(metadata: Any, tokens: int, poison: tuple[int, ...] = ()) -> list[float]:
    """The output of each query token, in a cache of 12 slots; those in `poison` hold NaN."""
    values = 10.0 * np.arange(12)
    values[list(poison)] = NAN
    zeros = np.zeros((tokens, 1, 1)), np.zeros((12, 1, 1))
    return interpreter.attention(interpreter.rows(metadata, 2), *zeros, values[:, None, None], 1.0).reshape(-1).tolist()


def block_table(**changes: Any) -> SimpleNamespace:
    """Two rows: 2 query tokens at the end of 3 keys in pages 4 and 2 (slots 8, 9, 4), and 1 of 1 key in page 3."""
    metadata = {
        "query_start_loc": np.array([0, 2, 3]), "seq_lens": np.array([3, 1]),
        "block_table": np.array([[4, 2], [3, 0]]), "max_query_len": 2, "max_seq_len": 3, "causal": True,
    }  # fmt: skip
    return SimpleNamespace(**{**metadata, **changes})


def test_a_block_table_leads_to_pages_in_its_order() -> None:
    # token 0 sees slots 8 and 9, token 1 also 4; token 2 sees slot 6
    assert of_slots(block_table(), 3) == [85.0, 70.0, 60.0]


def test_without_a_causal_mask_every_token_sees_all_keys_of_its_row() -> None:
    assert of_slots(block_table(causal=False), 3) == [70.0, 70.0, 60.0]


def test_slots_that_nobody_reaches_do_not_matter_and_one_that_is_reached_does() -> None:
    assert of_slots(block_table(), 3, poison=(0, 1, 5, 7)) == [85.0, 70.0, 60.0]
    assert np.isnan(of_slots(block_table(), 3, poison=(4,))).tolist() == [False, True, False]


def test_a_page_outside_the_cache_is_poison() -> None:
    found = of_slots(block_table(block_table=np.array([[4, 6], [-1, 0]])), 3)
    assert np.isnan(found).tolist() == [False, True, True]


def test_a_token_that_no_row_computes_is_poison() -> None:
    assert np.isnan(of_slots(block_table(query_start_loc=np.array([0, 1, 2])), 3)).tolist() == [False, False, True]


def test_a_row_with_more_query_tokens_than_keys_leaves_the_first_without_any() -> None:
    # aligned to the end: token 0 would be at position -1; FlashAttention documents zero for it
    assert of_slots(block_table(seq_lens=np.array([1, 1])), 3) == [0.0, 80.0, 60.0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_seq_len": 2}, "a row has 3 keys, the longest is said to be 2"),
        ({"max_query_len": 1}, "a row has 2 query tokens, the longest is said to be 1"),
        ({"block_table": np.array([[4], [3]])}, "3 keys need more pages than the 1 of a row"),
        ({"seq_lens": np.array([3])}, "2 rows have 1 lengths and 2 rows of pages"),
        ({"query_start_loc": np.array([0, 2, 1])}, "does not start at 0 or falls"),
        ({"query_start_loc": np.array([1, 2, 3])}, "does not start at 0 or falls"),
    ],
)
def test_what_the_kernels_do_not_document_is_a_broken_contract(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(interpreter.ContractBroken, match=words):
        of_slots(block_table(**changes), 3)


def parts(decode: Any = None, prefill: Any = None, decodes: tuple[int, int] = (0, 0), prefills: int = 0) -> Any:
    rows, tokens = decodes
    return SimpleNamespace(
        num_decodes=rows, num_decode_tokens=tokens, num_prefills=prefills, decode=decode, prefill=prefill
    )


def planned(**tables: Any) -> SimpleNamespace:
    """A wrapper, planned for two rows: pages 4 and 2 with 1 token in the last, and page 3 with 2."""
    of = {"indptr": np.array([0, 2, 3]), "indices": np.array([4, 2, 3, 9]), "last_page_len": np.array([1, 2])}
    return SimpleNamespace(wrapper=SimpleNamespace(planned={**of, **tables}))


def test_a_decode_wrapper_has_one_token_a_row_which_sees_all_keys() -> None:
    assert of_slots(parts(decode=planned(), decodes=(2, 2)), 2) == [70.0, 65.0]


def test_a_prefill_wrapper_comes_after_the_decodes_and_is_causal_if_it_was_told_so() -> None:
    prefill = planned(qo_indptr=np.array([0, 2, 3]), causal=True)
    decode = SimpleNamespace(
        q_len_per_req=1, q_cu_seq_lens=None, mask=None, max_seq_len=2,
        block_tables=np.array([[5]]), seq_lens=np.array([2]),
    )  # fmt: skip
    both = parts(decode, prefill, decodes=(1, 1), prefills=2)
    assert of_slots(both, 4) == [105.0, 85.0, 70.0, 65.0]
    prefill.wrapper.planned["causal"] = False
    assert of_slots(both, 4) == [105.0, 70.0, 70.0, 65.0]


@pytest.mark.parametrize(
    "tables",
    [
        {"last_page_len": np.array([0, 2])},
        {"last_page_len": np.array([1, 3])},
        {"last_page_len": np.array([1])},
        {"indptr": np.array([0, 2, 2])},
        {"indptr": np.array([0, 2, 5])},
        {"indptr": np.array([0, 2])},
    ],
)
def test_pointers_that_flashinfer_does_not_document_are_a_broken_contract(tables: dict[str, Any]) -> None:
    with pytest.raises(interpreter.ContractBroken, match="decode"):
        of_slots(parts(decode=planned(**tables), decodes=(2, 2)), 2)


def test_what_a_wrapper_was_told_of_scale_and_heads_counts() -> None:
    """One token sees values 0 and 10 with scores 0 and ln 3: 7.5. Twice the scale gives scores 0 and ln 9: 9."""
    table = {"indptr": np.array([0, 1]), "indices": np.array([0]), "last_page_len": np.array([2])}
    cache = np.ones((1, 2, 1)), np.array([0, np.log(3)]).reshape(2, 1, 1), np.array([0.0, 10.0]).reshape(2, 1, 1)
    for scale, wanted in ((None, 7.5), (1.0, 7.5), (2.0, 9.0)):
        told = planned(**table, sm_scale=scale, num_qo_heads=4, num_kv_heads=2)
        rows = interpreter.rows(parts(decode=told, decodes=(1, 1)), 2)
        assert interpreter.attention(rows, *cache, 1.0).reshape(-1) == pytest.approx([wanted, wanted])
    other = planned(**table, num_qo_heads=4, num_kv_heads=4)
    with pytest.raises(interpreter.ContractBroken, match="told of 1 query heads per KV head, the layer has 2"):
        interpreter.attention(interpreter.rows(parts(decode=other, decodes=(1, 1)), 2), *cache, 1.0)


def test_a_real_wrapper_keeps_its_tables_in_its_attributes() -> None:
    real = SimpleNamespace(
        _paged_kv_indptr_buf=np.array([0, 2, 3]), _paged_kv_indices_buf=np.array([4, 2, 3]),
        _paged_kv_last_page_len_buf=np.array([1, 2]), _qo_indptr_buf=np.array([0, 2, 3]), _causal=True, _sm_scale=0.5,
    )  # fmt: skip
    assert of_slots(parts(prefill=SimpleNamespace(wrapper=real), prefills=2), 3) == [85.0, 70.0, 65.0]


def test_a_wrapper_that_shows_nothing_is_unknown_not_right() -> None:
    with pytest.raises(interpreter.Unknown):
        interpreter.rows(parts(decode=SimpleNamespace(wrapper=object()), decodes=(1, 1)), 2)
    with pytest.raises(interpreter.Unknown):
        interpreter.rows(SimpleNamespace(), 2)


def trtllm_prefill(**changes: Any) -> Any:
    """Two rows behind one decode token: the block table of above."""
    part = {
        "cum_seq_lens_q": np.array([0, 2, 3]), "cum_seq_lens_kv": np.array([0, 2, 3]), "max_q_len": 2, "max_seq_len": 3,
        "seq_lens": np.array([3, 1]), "block_tables": np.array([[4, 2], [3, 0]]),
    }  # fmt: skip
    return SimpleNamespace(**{**part, **changes})


def test_trtllm_gen_prefills_are_causal_and_come_after_the_decodes() -> None:
    decode = planned(indptr=np.array([0, 1]), indices=np.array([5]), last_page_len=np.array([2]))
    assert of_slots(parts(decode, trtllm_prefill(), (1, 1), 2), 4) == [105.0, 85.0, 70.0, 60.0]


def test_cumulative_lengths_without_an_entry_per_row_are_too_short() -> None:
    with pytest.raises(interpreter.TooShort, match="cum_seq_lens_kv has 2 entries, the kernel reads 3"):
        of_slots(parts(None, trtllm_prefill(cum_seq_lens_kv=np.array([0, 2])), prefills=2), 3)


def windows(kernel: str, mask: Any, starts: Any = None, longest: int = 2) -> Any:
    """Decodes of 2 and 2 tokens (or as `starts` says) at the end of 3 keys (slots 8, 9, 4) and of 2 (slots 6, 7)."""
    return SimpleNamespace(
        kernel=SimpleNamespace(value=kernel), q_len_per_req=longest, q_cu_seq_lens=starts, mask=mask, max_seq_len=3,
        seq_lens=np.array([3, 2]), block_tables=np.array([[4, 2], [3, 0]]),
    )  # fmt: skip


def test_trtllm_gen_windows_are_causal() -> None:
    assert of_slots(parts(windows("trtllm-gen", None), decodes=(2, 4)), 4) == [85.0, 70.0, 60.0, 65.0]


def test_xqa_sees_what_is_before_the_window_and_of_the_window_what_the_mask_says() -> None:
    # windows of 2, a word a token, low half first: token 0 sees bit 0, token 1 both; in the other request only bit 1
    mask = np.array([[[1, 0], [3, 0]], [[1, 0], [2, 0]]], dtype=np.uint16)
    assert of_slots(parts(windows("xqa", mask), decodes=(2, 4)), 4) == [85.0, 70.0, 60.0, 70.0]


def test_ragged_windows_have_mask_rows_for_their_own_tokens() -> None:
    # one token, then two: the first request's only token sees itself and all before
    mask = np.array([[1, 0], [1, 0], [3, 0]], dtype=np.uint16)
    ragged = windows("xqa", mask, starts=np.array([0, 1, 3]))
    assert of_slots(parts(ragged, decodes=(2, 3)), 3) == [70.0, 60.0, 65.0]


def test_a_mask_with_fewer_rows_than_windows_is_too_short() -> None:
    with pytest.raises(interpreter.TooShort, match="the draft mask has 1 entries, the kernel reads 2"):
        of_slots(parts(windows("xqa", np.array([[[1, 0], [3, 0]]], dtype=np.uint16)), decodes=(2, 4)), 4)


@pytest.mark.parametrize("mask", [None, np.zeros((2, 2, 4), np.uint16), np.zeros((2, 3, 2), np.uint16)])
def test_windows_without_a_mask_of_their_shape_are_a_broken_contract(mask: Any) -> None:
    with pytest.raises(interpreter.ContractBroken, match="mask"):
        of_slots(parts(windows("xqa", mask), decodes=(2, 4)), 4)


def test_a_token_beyond_the_first_word_of_a_mask_has_its_bit_in_the_second() -> None:
    mask = np.zeros((1, 33, 4), dtype=np.uint16)
    mask[0, 32] = [0, 0, 1, 0]  # bit 32, and no other
    part = SimpleNamespace(
        kernel=SimpleNamespace(value="xqa"), q_len_per_req=33, q_cu_seq_lens=None, mask=mask, max_seq_len=33,
        seq_lens=np.array([33]), block_tables=np.arange(17)[None],
    )  # fmt: skip
    (row,) = interpreter.rows(parts(part, decodes=(1, 33)), 2)
    assert row.slots[row.visible[32]].tolist() == [32]


class Tensor(np.ndarray):
    """As much of a tensor as FlexAttention's part needs."""

    new_tensor = staticmethod(np.asarray)


def blocks(counts: list[int], listed: list[list[int]], **more: Any) -> SimpleNamespace:
    """A BlockMask of query blocks of 2 tokens and pages of 2, that is causal in slots: slot <= 8 + token."""
    mask = {
        "BLOCK_SIZE": (2, 2), "kv_num_blocks": np.array(counts)[None, None],
        "kv_indices": np.array(listed)[None, None].view(Tensor), "mask_mod": lambda b, h, q, kv: kv <= 8 + q,
        "full_kv_num_blocks": None, "full_kv_indices": None,
    }  # fmt: skip
    return SimpleNamespace(
        physical_to_logical=None, num_actual_tokens=3, block_mask=SimpleNamespace(**{**mask, **more})
    )


def test_flex_attention_visits_the_listed_blocks_and_masks_inside_them() -> None:
    # block 0: pages 4 and 2, slots 8, 9, 4, 5 but not 9 for token 0; block 1: page 3 only, though two are written down
    metadata = blocks([2, 1], [[4, 2], [3, 1]])
    assert of_slots(metadata, 3) == [pytest.approx(170 / 3), 65.0, 65.0]


def test_flex_attention_never_computes_what_no_block_lists() -> None:
    assert of_slots(blocks([1, 1], [[4, 2], [3, 1]]), 3) == [80.0, 85.0, 65.0]


def test_flex_attention_counts_a_block_twice_that_is_listed_twice() -> None:
    assert of_slots(blocks([2, 2], [[4, 4], [3, 1]]), 3)[0] == 80.0
    assert of_slots(blocks([3, 1], [[4, 4, 2], [3, 1, 0]]), 3)[0] == (80 + 80 + 40 + 50) / 4


def test_flex_attention_sees_full_blocks_without_the_mask() -> None:
    full = {"full_kv_num_blocks": np.array([1, 0])[None, None], "full_kv_indices": np.array([[5], [0]])[None, None]}
    assert of_slots(blocks([0, 1], [[4, 2], [3, 1]], **full), 3) == [105.0, 105.0, 65.0]


def test_the_definition_by_hand() -> None:
    """Chunks of 2, pages of 2 and a table that swaps them: tokens 1 and 2 of a sequence of 3, two heads to a KV head.

    Keys 0, ln 3, 0 and values 1, 5, 9 at positions 0, 1, 2. Token 1 sees positions 0 and 1 with query 1 (weights 1 and
    3) or query 0 (equal weights); token 2 opens the second chunk and sees itself.
    """
    keys, values = np.full((2, 4, 1, 1), NAN)
    keys[[2, 3, 0], 0, 0], values[[2, 3, 0], 0, 0] = [0, np.log(3), 0], [1, 5, 9]
    queries = np.array([[1.0, 0.0], [1.0, 0.0]])[..., None]
    found = reference.attention(
        reference.Cache(queries, keys, values), np.array([2]), np.array([3]), Chunked(2), np.array([[1, 0]]), 2, 1.0
    )
    assert found[..., 0] == pytest.approx(np.array([[(1 + 3 * 5) / 4, 3.0], [9.0, 9.0]]))
