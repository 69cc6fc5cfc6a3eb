"""What 0.32.0 is known to do, measured again through the whole line: matrix, worker, real vLLM, results, exit code.

The figures were first measured by hand on vLLM 0.32.0, and follow from its source: buffers of max_num_seqs (+ 1)
entries, one row per virtual batch.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]


def run(out: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "runner", "--out", str(out), "-q", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    results = out / "results.json"
    assert results.exists(), done.stderr
    return done.returncode, json.loads(results.read_text())


def filters(*expressions: str) -> list[str]:
    return [argument for expression in expressions for argument in ("--filter", expression)]


@pytest.fixture(scope="module")
def naked(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[dict[str, Any]]]:
    """The cells that the public report is about, without known issues."""
    out = tmp_path_factory.mktemp("naked") / "run"
    return run(out, "--engine", "local", "--no-known", *filters("flashinfer", "solo", "c64", "k0,k2,k3", "arch!=cpu"))


def overflows(results: Sequence[dict[str, Any]], **axes: Any) -> dict[str, list[dict[str, Any]]]:
    """The overflows of the cells with these axis values, by cell id."""
    chosen = [r for r in results if all(r["axes"][axis] == value for axis, value in axes.items())]
    assert {r["axes"]["hybrid"] for r in chosen} == {"on", "off"}, "each truth holds for hybrid on and off"
    return {r["id"]: r["overflow"] for r in chosen}


def test_the_naked_truth_exits_1(naked: tuple[int, list[dict[str, Any]]]) -> None:
    code, results = naked
    assert code == 1
    assert {r["verdict"] for r in results} == {"overflow"}
    assert {r["evidence"] for r in results} == {"emulated"}


@pytest.mark.parametrize("arch", ["sm80", "sm89", "sm90", "sm120"])
def test_paged_kv_indptr_raises_where_prefill_is_native(naked: tuple[int, list[dict[str, Any]]], arch: str) -> None:
    for id_, found in overflows(naked[1], arch=arch).items():
        (indptr,) = [o for o in found if o["buffer"] == "paged_kv_indptr"]
        # the smallest batch has one virtual batch too many: 2 rows need 3 pointers, max_num_seqs + 1 are there
        assert (indptr["required"], indptr["allocated"], indptr["how"]) == (3, 2, "raised"), id_
        assert len(indptr["batch"]["query_lens"]) == 1, id_


@pytest.mark.parametrize("arch", ["sm100", "sm103"])
def test_cumulative_kv_lengths_are_short_without_a_word_on_the_sm100_family(
    naked: tuple[int, list[dict[str, Any]]], arch: str
) -> None:
    for id_, found in overflows(naked[1], arch=arch).items():
        assert "raised" not in {o["how"] for o in found}, id_
        (lengths,) = [o for o in found if o["buffer"] == "cum_seq_lens_kv"]
        assert lengths["how"] == "short", id_
        assert lengths["required"] > lengths["allocated"], id_
        assert [o["how"] for o in found if o["buffer"] == "paged_kv_indptr"] == ["resized"], id_


@pytest.mark.parametrize("arch", ["sm90", "sm120"])
def test_xqa_mask_has_one_row_for_two_decodes(naked: tuple[int, list[dict[str, Any]]], arch: str) -> None:
    # k = 3: a verify window cut 2 + 2 around position 64; k = 2: the last four tokens of a prompt, cut there as well,
    # are two rows of a length that decodes (a window of three is cut unevenly, and its ragged mask is built in full)
    chosen = overflows(naked[1], arch=arch, spec_k=3) | overflows(naked[1], arch=arch, spec_k=2)
    for id_, found in chosen.items():
        (mask,) = [o for o in found if o["buffer"] == "xqa_draft_mask"]
        assert (mask["required"], mask["allocated"], mask["how"]) == (2, 1, "short"), id_
        assert mask["batch"] == {"query_lens": [4], "seq_lens": [66]}, id_  # 2 + 2 around position 64


def test_what_is_known_is_expected_and_exits_0(tmp_path: Path) -> None:
    code, results = run(
        tmp_path / "run", "--engine", "local", *filters("flashinfer,flex_attention", "solo", "c64", "k3", "sm90,sm100")
    )
    assert code == 0
    assert {(r["state"], r["verdict"]) for r in results} == {("overflow", "xfail")}


def test_what_is_known_and_passes_is_a_surprise_and_exits_1(tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.yaml"
    known = "  - {where: {backend: triton_attn}, state: overflow, issue: 'https://example.org/1', because: not so}\n"
    matrix.write_text((PROJECT / "matrix.yaml").read_text() + known)
    chosen = filters("triton_attn", "solo", "c64", "k3", "sm90")
    code, results = run(tmp_path / "run", "--engine", "local", "--matrix", str(matrix), *chosen)
    assert code == 1
    assert {r["verdict"] for r in results} == {"xpass"}


def test_a_load_that_cannot_overflow_passes_and_takes_nothing_out_of_what_is_known(tmp_path: Path) -> None:
    """Sixteen requests, each of which fits in one chunk of 8192: no known issue that names no load speaks of them."""
    matrix = tmp_path / "matrix.yaml"
    text = (PROJECT / "matrix.yaml").read_text()
    shape = "{max_num_seqs: 16, max_num_batched_tokens: 8192, max_model_len: 8192, block_size: 16, "
    shape += "num_heads: 8, num_kv_heads: 2, head_size: 128, dtype: bfloat16}"
    text = text.replace("load: [solo, small, server]", "load: [solo, small, server, roomy]", 1)
    matrix.write_text(text.replace("\nloads:\n", f"\nloads:\n  roomy: {shape}\n", 1))
    out, options = tmp_path / "run", ("--engine", "local", "--matrix", str(matrix))
    code, results = run(
        out, *options, *filters("flashinfer,flex_attention", "roomy", "k3", "sm90", "hybrid=on", "chunk>64")
    )
    found = {(r["axes"]["chunk"], r["verdict"]) for r in results}
    assert found == {(1024, "xfail"), (8192, "pass")}, "where it can overflow it is known as ever"
    assert code == 0
    before = matrix.read_text()
    command = [sys.executable, "-m", "runner", "known", "prune", str(out), "--matrix", str(matrix), "--write"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert (done.returncode, matrix.read_text()) == (0, before), done.stderr


def test_batches_within_capacity_pass_on_the_same_builders(tmp_path: Path) -> None:
    _, results = run(
        tmp_path / "run", "--engine", "local", *filters("flashinfer", "server", "c64", "k0,k3", "sm80,sm90,sm100,sm120")
    )
    assert len(results) == 16
    for result in results:
        states = {case["name"]: case["state"] for case in result["cases"]}
        assert states["test_paged_kv_buffers_hold_batches_without_a_split"] == "pass", result["id"]
        assert states["test_each_query_token_reaches_exactly_its_chunk"] == "pass", result["id"]


def test_what_vllm_says_of_every_process_is_in_no_cells_log(tmp_path: Path) -> None:
    """FlashAttention's builder says at each build that it has no compiled code on a CPU."""
    out = tmp_path / "run"
    code, results = run(out, "--engine", "local", *filters("flash_attn", "small", "c64", "k1", "sm80,sm90,sm100"))
    assert (code, len(results)) == (0, 6)
    assert [path.read_text() for path in out.glob("cells/*/*.log")] == []


def test_what_vllm_resolved_is_recorded(naked: tuple[int, list[dict[str, Any]]]) -> None:
    kernels = {r["axes"]["arch"]: (r["resolved"]["prefill_kernel"], r["resolved"]["decode_kernel"]) for r in naked[1]}
    assert kernels == {
        "sm80": ("flashinfer-native", "flashinfer-native"),
        "sm89": ("flashinfer-native", "flashinfer-native"),
        "sm90": ("flashinfer-native", "xqa"),
        "sm100": ("trtllm-gen", "trtllm-gen"),
        "sm103": ("trtllm-gen", "trtllm-gen"),
        "sm120": ("flashinfer-native", "xqa"),
    }
    for result in naked[1]:
        assert result["resolved"]["hybrid"] == result["axes"]["hybrid"], result["id"]
        wanted = "ChunkedLocalAttentionSpec" if result["axes"]["hybrid"] == "on" else "FullAttentionSpec"
        assert result["resolved"]["kv_spec"] == wanted, result["id"]
