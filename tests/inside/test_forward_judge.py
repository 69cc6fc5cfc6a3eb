"""What forward cells tolerate: an output that is right but for its rounding, not the smallest fault that matters."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cases import reference
from cases.forward import inputs
from cases.forward.judge import SENTINEL, judge
from cases.patterns import Chunked, Full
from cases.verdicts import Batch

CHUNK, PAGE, HEADS, KV_HEADS = 8192, 16, 4, 2
BATCH = Batch((1,), (CHUNK,))
"""One query token that sees all of the largest chunk: there a key weighs least."""
TABLE = np.random.default_rng(2).permutation(np.arange(1, 1 + CHUNK // PAGE))[None]


def given(size: int = 128, dtype: torch.dtype = torch.bfloat16) -> inputs.Inputs:
    return inputs.of(BATCH, Chunked(CHUNK), TABLE, inputs.Heads(HEADS, KV_HEADS, size, dtype, False, PAGE))


def attended(of: inputs.Inputs, slots: np.ndarray) -> np.ndarray:
    """Attention in float64 over these of the held slots, rounded to the inputs' dtype."""
    keys, values = (t.double().numpy()[np.searchsorted(of.slots.numpy(), slots)] for t in (of.keys, of.values))
    size = of.queries.shape[2]
    cache = reference.Cache(of.queries.double().numpy(), keys, values)
    table, count = np.arange(len(slots))[None], np.array([len(slots)])
    out = reference.attention(cache, np.array([1]), count, Full(), table, 1, size**-0.5)
    return torch.from_numpy(out).to(of.queries.dtype).double().numpy()


def slots_in_order() -> np.ndarray:
    return reference.slots(TABLE[0], np.arange(CHUNK), PAGE)


def says(
    of: inputs.Inputs, output: np.ndarray, dtype: str = "bfloat16", backend: str = "flashinfer", cut: bool = False
) -> str:
    return judge(output, of, BATCH, Chunked(CHUNK), dtype, backend, cut=cut).words


KERNELS = [(backend, False, size) for backend in ("flashinfer", "triton_attn") for size in (64, 128, 256)]


@pytest.mark.parametrize(("backend", "cut", "size"), [*KERNELS, ("cpu_attn", True, 128), ("cpu_attn", True, 256)])
def test_rounding_is_tolerated_and_a_single_key_is_not(backend: str, cut: bool, size: int) -> None:
    of, right = given(size), slots_in_order()
    assert says(of, attended(of, right), backend=backend, cut=cut) == ""
    for faulty in (right[:-1], right[1:], np.delete(right, CHUNK // 2), np.append(right, right[0])):
        assert "off by" in says(of, attended(of, faulty), backend=backend, cut=cut)


def test_bits_that_are_left_off_are_tolerated_of_a_kernel_that_does_not_round() -> None:
    batch = Batch((1,), (100,))
    of = inputs.of(batch, Chunked(CHUNK), TABLE, inputs.Heads(HEADS, KV_HEADS, 128, torch.bfloat16, False, PAGE))
    left_off = (torch.from_numpy(of.wanted).float().view(torch.int32) & -(1 << 16)).view(torch.float32).double().numpy()
    assert judge(left_off, of, batch, Chunked(CHUNK), "bfloat16", "cpu_attn", cut=True).words == ""
    assert "off by" in judge(left_off, of, batch, Chunked(CHUNK), "bfloat16", "cpu_attn", cut=False).words


def test_a_page_of_another_place_is_not_tolerated() -> None:
    """A page that is read twice, in the place of its neighbour."""
    of, shifted = given(), slots_in_order()
    shifted[PAGE : 2 * PAGE] = shifted[:PAGE]
    assert "head 2" in says(of, attended(of, shifted)) or "head 3" in says(of, attended(of, shifted))


@pytest.mark.parametrize("factor", [1 + 2.0**-6, 1 - 2.0**-6])
def test_an_output_off_by_four_roundings_is_not_tolerated(factor: float) -> None:
    of = given()
    assert "off by" in says(of, attended(of, slots_in_order()) * factor)


def test_rows_that_nobody_wrote_and_nan_have_words_of_their_own() -> None:
    of = given()
    untouched, nan = attended(of, slots_in_order()), attended(of, slots_in_order())
    untouched[0, 1], nan[0, 3, 5] = SENTINEL, np.nan
    assert says(of, untouched) == (
        "query token 0 (request 0, position 8191, place 8191 of its chunk), head 1: untouched; "
        "wrong are 0 of 1 query tokens"
    )
    assert "head 3: NaN" in says(of, nan)


def test_what_no_query_may_reach_is_held_by_nobody() -> None:
    """A decode of a chunk's first token holds one key: the other slots are poison."""
    heads = inputs.Heads(HEADS, KV_HEADS, 64, torch.bfloat16, False, PAGE)
    of = inputs.of(Batch((1,), (CHUNK + 1,)), Chunked(CHUNK), np.append(TABLE, [[600]], axis=1), heads)
    assert of.slots.tolist() == [600 * PAGE]
    assert of.wanted[0, 2:].tolist() == of.values[0, 1:].double().repeat_interleave(2, 0).tolist()


def test_fp8_inputs_are_numbers_that_the_cache_holds() -> None:
    heads = inputs.Heads(HEADS, KV_HEADS, 64, torch.bfloat16, True, PAGE)
    of = inputs.of(replace(BATCH, seq_lens=(100,)), Chunked(CHUNK), TABLE, heads)
    scales = ((of.queries, inputs.Q_SCALE), (of.keys, inputs.K_SCALE), (of.values, inputs.V_SCALE))
    for numbers, scale in scales:
        stored = (numbers.float() / scale).to(torch.float8_e4m3fn).float() * scale
        assert torch.equal(stored, numbers.float())
