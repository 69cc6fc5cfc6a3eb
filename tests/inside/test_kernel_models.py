"""The models of compiled kernels against the vendor's own Python references and against attention by its definition.

FlashInfer's references model less than the kernels: the paged ones take whole last pages, the decode ones have no
causal mask for several query tokens, and XQA's has no draft mask. So pages are full there, and decodes have one token.
"""

import math

import numpy as np
import pytest
import torch
from flashinfer.trace.templates import attention as vendor

from attnmatrix_vllm import contracts, flash_attention_kernel, flashinfer_trtllm, flashinfer_wrappers, flashinfer_xqa
from attnmatrix_vllm.cache_kernels import reshape_and_cache_flash
from attnmatrix_vllm.contracts import ContractBroken, OutOfRange
from cases import reference
from cases.patterns import Full

PAGE, PAGES, KV_HEADS, GROUP, SIZE, CHUNK = 16, 24, 2, 3, 32, 64
SCALE, DTYPE = 0.3, torch.bfloat16
HALF_AN_ULP = 2.0**-9
"""Of bfloat16 below 1."""
WORKSPACE = torch.zeros(64, dtype=torch.uint8)
TABLE = torch.from_numpy(np.random.default_rng(3).permutation(np.arange(1, PAGES))[:21].reshape(3, 7).astype(np.int32))
LENS = torch.tensor([100, 64, 97], dtype=torch.int32)
"""Key lengths: one that ends inside a page, one at its end, one with a single key on its last page."""


def tokens(count: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(count).uniform(-1, 1, (count, KV_HEADS * GROUP, SIZE))).to(DTYPE)


def cache(layout: str = "NHD") -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values side by side in one tensor, as vLLM lays them out."""
    random = np.random.default_rng(5).uniform(-1, 1, (PAGES, PAGE, KV_HEADS, 2 * SIZE))
    whole = torch.from_numpy(random).to(DTYPE)
    keys, values = (whole.transpose(1, 2).contiguous() if layout == "HND" else whole).split(SIZE, dim=-1)
    return keys, values


def defined(query: torch.Tensor, query_lens: list[int], key_lens: list[int], **softmax: float) -> torch.Tensor:
    """Causal attention of these rows by the definition."""
    keys, values = (t.double().flatten(0, 1).numpy() for t in cache())
    given = reference.Cache(query.double().numpy(), keys, values)
    found = reference.attention(
        given, np.array(query_lens), np.array(key_lens), Full(), TABLE.numpy().astype(np.int64), PAGE, SCALE, **softmax
    )
    return torch.from_numpy(found)


def close(found: torch.Tensor, wanted: torch.Tensor, within: float = HALF_AN_ULP) -> None:
    """All outputs are sums of values below 1 with weights that add up to 1: one rounding, and the vendor's float32."""
    torch.testing.assert_close(found.double(), wanted.double(), rtol=0, atol=within * 1.01)


def context(query: torch.Tensor, starts: list[int], lens: torch.Tensor = LENS, **more: object) -> torch.Tensor:
    cumulative = torch.tensor(starts, dtype=torch.int32)
    given = {
        "block_tables": TABLE, "seq_lens": lens, "max_q_len": 128, "max_kv_len": 128, "bmm1_scale": SCALE,
        "bmm2_scale": 1.0, "batch_size": len(starts) - 1, "cum_seq_lens_q": cumulative, "cum_seq_lens_kv": cumulative,
    }  # fmt: skip
    return flashinfer_trtllm.trtllm_batch_context_with_kv_cache(query, cache("HND"), WORKSPACE, **given | more)


def xqa(query: torch.Tensor, lens: torch.Tensor = LENS, **more: object) -> torch.Tensor:
    given = {"block_tables": TABLE, "seq_lens": lens, "max_seq_len": 128, "bmm1_scale": SCALE}
    return flashinfer_xqa.xqa_batch_decode_with_kv_cache(query, cache(), WORKSPACE, **given | more)


def decode(query: torch.Tensor, **more: object) -> torch.Tensor:
    given = {"block_tables": TABLE, "seq_lens": LENS, "max_seq_len": 128, "bmm1_scale": SCALE, "backend": "trtllm-gen"}
    return flashinfer_trtllm.trtllm_batch_decode_with_kv_cache(query, cache("HND"), WORKSPACE, **given | more)


def flash(query: torch.Tensor, starts: list[int], **more: object) -> torch.Tensor:
    given = {
        "max_seqlen_q": 128, "cu_seqlens_q": torch.tensor(starts, dtype=torch.int32), "max_seqlen_k": 128,
        "seqused_k": LENS, "block_table": TABLE, "softmax_scale": SCALE, "causal": True,
    }  # fmt: skip
    return flash_attention_kernel.flash_attn_varlen_func(query, *cache(), **given | more)


def paged(lens: list[int]) -> dict[str, torch.Tensor]:
    pages = [-(-n // PAGE) for n in lens]
    return {
        "indptr": torch.tensor([0, *np.cumsum(pages)], dtype=torch.int32),
        "indices": torch.cat([TABLE[row, :n] for row, n in enumerate(pages)]),
        "last_page_len": torch.tensor([(n - 1) % PAGE + 1 for n in lens], dtype=torch.int32),
    }


HEADS = {"num_qo_heads": KV_HEADS * GROUP, "num_kv_heads": KV_HEADS, "page_size": PAGE}
DTYPES = {"q_data_type": DTYPE, "kv_data_type": DTYPE, "sm_scale": SCALE}


def native(
    query: torch.Tensor, starts: list[int], lens: list[int], layout: str = "NHD", **more: object
) -> torch.Tensor:
    tables = paged(lens)
    wrapper = flashinfer_wrappers.BatchPrefillWithPagedKVCacheWrapper(None, layout)
    wrapper.plan(
        torch.tensor(starts, dtype=torch.int32), tables["indptr"], tables["indices"], tables["last_page_len"],
        head_dim_qk=SIZE, causal=True, **HEADS, **DTYPES | more,
    )  # fmt: skip
    return wrapper.run(query, cache(layout))


STARTS = [0, 40, 41, 60]
QUERY_LENS, KEY_LENS = [40, 1, 19], LENS.tolist()


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_native_prefill_is_attention_by_the_definition(layout):
    close(native(tokens(60), STARTS, KEY_LENS, layout), defined(tokens(60), QUERY_LENS, KEY_LENS))


def test_native_prefill_is_the_vendors():
    lens, query, (keys, values) = [96, 64, 112], tokens(60), cache()
    tables = paged(lens)
    theirs, _ = vendor._gqa_paged_prefill_reference(
        query, keys, values, torch.tensor(STARTS), tables["indptr"], tables["indices"], SCALE
    )
    close(native(query, STARTS, lens), theirs, 2 * HALF_AN_ULP)  # both round: to either side


def test_native_decode_is_attention_by_the_definition_and_the_vendors():
    query, tables = tokens(3), paged(KEY_LENS)
    wrapper = flashinfer_wrappers.BatchDecodeWithPagedKVCacheWrapper(None)
    wrapper.plan(**tables, head_dim=SIZE, **HEADS, **DTYPES)
    close(wrapper.run(query, cache()), defined(query, [1, 1, 1], KEY_LENS))
    full = paged([96, 64, 112])
    wrapper.plan(**full, head_dim=SIZE, **HEADS, **DTYPES)
    theirs, _ = vendor._gqa_paged_decode_reference(query, *cache(), full["indptr"], full["indices"], SCALE)
    close(wrapper.run(query, cache()), theirs, 2 * HALF_AN_ULP)


def test_trtllm_context_is_attention_by_the_definition_and_the_vendors():
    query = tokens(60)
    close(context(query, STARTS), defined(query, QUERY_LENS, KEY_LENS))
    theirs = vendor._trtllm_batch_context_reference(
        query, torch.stack(cache("HND"), 1), None, TABLE, LENS, 40, 128, SCALE, 1.0, 3, torch.tensor(STARTS), None
    )
    close(context(query, STARTS), theirs, 2 * HALF_AN_ULP)


@pytest.mark.parametrize("kernel", [xqa, decode])
def test_decodes_of_one_token_are_attention_by_the_definition_and_the_vendors(kernel):
    query = tokens(3)
    close(kernel(query), defined(query, [1, 1, 1], KEY_LENS))
    theirs = vendor._trtllm_batch_decode_reference(
        query, torch.stack(cache("HND"), 1), None, TABLE, LENS, 128, bmm1_scale=SCALE
    )
    close(kernel(query), theirs, 2 * HALF_AN_ULP)


def test_decodes_of_several_tokens_are_causal():
    query = tokens(9)
    close(decode(query, q_len_per_req=3), defined(query, [3, 3, 3], KEY_LENS))
    ragged = {"q_len_per_req": None, "max_q_len": 4, "cum_seq_lens_q": torch.tensor([0, 4, 5, 9], dtype=torch.int32)}
    close(decode(query, **ragged), defined(query, [4, 1, 4], KEY_LENS))


def packed(windows: list[int], longest: int) -> torch.Tensor:
    """Causal draft masks, row by row: bit t of a token's words is set for t up to its own place."""
    words = [sum(1 << t for t in range(i + 1)) for count in windows for i in range(count)]
    halves = [[(word >> 16 * half) & 0xFFFF for half in range(2 * -(-longest // 32))] for word in words]
    return torch.from_numpy(np.array(halves, dtype=np.uint16))


@pytest.mark.parametrize("longest", [3, 33])
def test_xqa_windows_of_one_length_are_causal_by_their_mask(longest):
    query, mask = tokens(3 * longest), packed([longest] * 3, longest).view(3, longest, -1)
    close(xqa(query, q_len_per_req=longest, mask=mask), defined(query, [longest] * 3, KEY_LENS))


def test_xqa_ragged_windows_are_causal_by_their_mask():
    query, starts = tokens(9), torch.tensor([0, 4, 5, 9], dtype=torch.int32)
    found = xqa(query, q_len_per_req=4, mask=packed([4, 1, 4], 4), q_cu_seq_lens=starts)
    close(found, defined(query, [4, 1, 4], KEY_LENS))


def test_xqa_with_a_full_mask_is_the_vendors_decode_without_causality():
    query, mask = tokens(6), torch.full((3, 2, 2), 3, dtype=torch.int16).view(torch.uint16)
    theirs = vendor._xqa_batch_decode_reference(
        query, torch.stack(cache("HND"), 1), None, TABLE, LENS, 128, bmm1_scale=SCALE
    )
    close(xqa(query, q_len_per_req=2, mask=mask), theirs, 2 * HALF_AN_ULP)


def test_flash_attention_is_attention_by_the_definition():
    close(flash(tokens(60), STARTS), defined(tokens(60), QUERY_LENS, KEY_LENS))


def by_hand(query: torch.Tensor, key_len: int, row: int = 0, *, cap: float = 0.0, sinks: list[float] | None = None,
            left: int = -1) -> torch.Tensor:  # fmt: skip
    """One query token that sees all keys of a row, head by head, in plain Python."""
    keys, values = (t[TABLE[row].long()].flatten(0, 1)[:key_len].double() for t in cache())
    out = []
    for head, q in enumerate(query[0].double()):
        scores = [SCALE * float(q @ k) for k in keys[:, head // GROUP]]
        scores = [cap * math.tanh(s / cap) for s in scores] if cap else scores
        weights = [math.exp(s) if left < 0 or place >= key_len - 1 - left else 0.0 for place, s in enumerate(scores)]
        total = sum(weights) + (math.exp(sinks[head]) if sinks else 0.0)
        out.append(sum(w * v for w, v in zip(weights, values[:, head // GROUP], strict=True)) / total)
    return torch.stack(out)[None]


SINKS = [0.5, -1.0, 2.0, 0.0, 3.0, 1.0]


def test_soft_cap_sinks_and_windows_are_those_of_a_calculation_by_hand():
    query, lens = tokens(1), torch.tensor([50], dtype=torch.int32)
    one = {"block_table": TABLE[:1], "seqused_k": lens}
    close(flash(query, [0, 1], **one, softcap=0.7), by_hand(query, 50, cap=0.7))
    close(flash(query, [0, 1], **one, window_size=[9, 0]), by_hand(query, 50, left=9))
    sinks = torch.tensor(SINKS)
    close(flash(query, [0, 1], **one, s_aux=sinks, fa_version=3), by_hand(query, 50, sinks=SINKS))
    close(native(query, [0, 1], [50], logits_soft_cap=0.7), by_hand(query, 50, cap=0.7))
    close(native(query, [0, 1], [50], window_left=9), by_hand(query, 50, left=9))
    close(xqa(query, lens, sinks=sinks), by_hand(query, 50, sinks=SINKS))
    close(xqa(query, lens, window_left=9), by_hand(query, 50, left=9))
    close(context(query, [0, 1], lens, sinks=sinks), by_hand(query, 50, sinks=SINKS))
    close(context(query, [0, 1], lens, window_left=9), by_hand(query, 50, left=9))


def test_an_output_given_is_written_and_its_dtype_checked():
    query, out = tokens(3), torch.full((4, KV_HEADS * GROUP, SIZE), 7.0, dtype=DTYPE)
    xqa(query, out=out[:3])
    close(out[:3], defined(query, [1, 1, 1], KEY_LENS))
    assert out[3].eq(7.0).all()
    with pytest.raises(ContractBroken, match=r"out is torch\.float32"):
        xqa(query, out=out[:3].float())


def test_a_short_draft_mask_is_a_read_past_its_end_and_spoils_its_rows_alone():
    query, mask = tokens(6), packed([2, 2], 2).view(2, 2, -1)
    with pytest.raises(OutOfRange) as said:
        xqa(query, q_len_per_req=2, mask=mask)
    assert (said.value.buffer, said.value.required, said.value.allocated) == ("xqa_draft_mask", 3, 2)
    with contracts.recorded() as met:
        found = xqa(query, q_len_per_req=2, mask=mask)
    assert [(e.buffer, e.required, e.allocated) for e in met] == [("xqa_draft_mask", 3, 2)]
    assert found[4:].isnan().all()
    close(found[:4], defined(query, [2, 2, 2], KEY_LENS)[:4])


def test_short_cumulative_key_lengths_are_a_read_past_their_end_that_changes_nothing():
    query, short = tokens(60), torch.zeros(2, dtype=torch.int32)
    with pytest.raises(OutOfRange) as said:
        context(query, STARTS, cum_seq_lens_kv=short)
    assert (said.value.buffer, said.value.required, said.value.allocated) == ("cum_seq_lens_kv", 4, 2)
    with contracts.recorded() as met:
        close(context(query, STARTS, cum_seq_lens_kv=short), defined(query, QUERY_LENS, KEY_LENS))
    assert len(met) == 1


@pytest.mark.parametrize(
    ("more", "buffer"),
    [({"block_tables": TABLE[:, :6].contiguous()}, "block_tables"), ({"block_tables": TABLE + 20}, "kv_cache"),
     ({"block_tables": TABLE[:2]}, "block_tables"), ({"lens": LENS[:2]}, "seq_lens")],
)  # fmt: skip
def test_reads_past_an_end_name_their_buffer(more, buffer):
    with pytest.raises(OutOfRange) as said:
        context(tokens(60), STARTS, **more)
    assert said.value.buffer == buffer


@pytest.mark.parametrize(
    ("more", "says"),
    [({"block_tables": TABLE.long()}, "int32"), ({"block_tables": TABLE[:, ::2]}, "int32 table"),
     ({"lens": LENS.long()}, "seq_lens is torch.int64"), ({"max_q_len": 39}, "at most 39"),
     ({"max_kv_len": 99}, "at most 99"), ({"kv_layout": "NHD"}, "KV heads"), ({"lens": LENS - 80}, "query tokens and")],
)  # fmt: skip
def test_what_a_contract_forbids_is_said(more, says):
    with pytest.raises(ContractBroken, match=says):
        context(tokens(60), STARTS, **more)


def test_the_cache_write_puts_each_token_into_its_slot_and_skips_padding():
    for dtype, bytes_ in (("auto", DTYPE), ("fp8", torch.uint8)):
        whole = torch.zeros((PAGES, KV_HEADS, PAGE, 2 * SIZE)).to(bytes_)
        keys, values = whole.transpose(1, 2).split(SIZE, dim=-1)
        key, value = tokens(5)[:, :KV_HEADS], tokens(7)[:5, :KV_HEADS]
        slots, scale = torch.tensor([17, -1, 5, 383]), torch.tensor([0.5])
        reshape_and_cache_flash(key, value, keys, values, slots, dtype, scale, scale * 2)
        stored = whole.view(torch.float8_e4m3fn).float() if dtype == "fp8" else whole.float()
        unit = stored.transpose(1, 2).flatten(0, 1)
        ulp = 2.0**-3 if dtype == "fp8" else 2.0**-8  # of e4m3, in [1, 2)
        for token, slot in ((0, 17), (2, 5), (3, 383)):
            torch.testing.assert_close(
                unit[slot] * torch.tensor([0.5 if dtype == "fp8" else 1.0] * SIZE + [1.0] * SIZE),
                torch.cat([key[token], value[token]], 1).float(), rtol=ulp, atol=2.0**-9,
            )  # fmt: skip
        assert unit.abs().sum((1, 2)).nonzero().flatten().tolist() == [5, 17, 383]
        with pytest.raises(OutOfRange, match="25 entries into 24"):
            reshape_and_cache_flash(key, value, keys, values, torch.tensor([PAGES * PAGE]), dtype, scale, scale)
