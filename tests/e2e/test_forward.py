"""Cells that compute, through the whole line: what forward makes of 0.32.0's metadata, and of the candidate's."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_truths import filters, run

PROJECT = Path(__file__).parents[2]
PATCH = PROJECT / "docs" / "candidates" / "flashinfer_rows.patch"
pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]

OUTPUTS = ("within_capacity", "wherever_tokens_stand", "for_the_worst_batches")
ENDS = "test_no_kernel_reads_past_an_end"


def cases_of(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {case["name"]: case for case in result["cases"]}


@pytest.fixture(scope="module")
def naked(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """FlashInfer with one request and k = 3, without known issues."""
    out = tmp_path_factory.mktemp("forward") / "run"
    chosen = filters("case=forward", "flashinfer", "solo", "c64", "k3", "sm80,sm90,sm100,sm120")
    code, results = run(out, "--engine", "local", "--no-known", *chosen)
    assert (code, len(results)) == (1, 8)
    assert {result["evidence"] for result in results} == {"emulated"}
    return results


def test_outputs_are_right_on_every_arch(naked: list[dict[str, Any]]) -> None:
    """Those that do not depend on what a kernel reads past an end; hybrid on and off."""
    for result in naked:
        states = [cases_of(result)[f"test_outputs_are_right_{name}"]["state"] for name in OUTPUTS]
        assert states == ["pass"] * 3, result["id"]


@pytest.mark.parametrize("arch", ["sm90", "sm120"])
def test_a_short_mask_is_read_past_its_end_and_its_tokens_are_named(naked: list[dict[str, Any]], arch: str) -> None:
    """A window of four cut in two: the second row of two tokens has no mask."""
    for result in (r for r in naked if r["axes"]["arch"] == arch):
        case = cases_of(result)[ENDS]
        (mask,) = [o for o in case["overflow"] if o["buffer"] == "xqa_draft_mask"]
        assert (mask["required"], mask["allocated"], mask["how"]) == (2, 1, "short"), result["id"]
        assert "for 1 rows, the first 1: by the model, query tokens 2, 3 of 4 are unknown" in case["message"]


def test_short_lengths_on_sm100_are_shown_for_what_they_are(naked: list[dict[str, Any]]) -> None:
    """The contract is broken, and the model of the kernel, which needs them not, computes what is right."""
    for result in (r for r in naked if r["axes"]["arch"] == "sm100"):
        case = cases_of(result)[ENDS]
        (lengths,) = [o for o in case["overflow"] if o["buffer"] == "cum_seq_lens_kv"]
        assert lengths["required"] > lengths["allocated"], result["id"]
        assert "the model of the kernel takes no number from it: by the model, the outputs of all" in case["message"]


def test_native_prefill_raises_before_anything_is_computed(naked: list[dict[str, Any]]) -> None:
    for result in (r for r in naked if r["axes"]["arch"] == "sm80"):
        assert {(o["buffer"], o["how"]) for o in result["overflow"]} == {("paged_kv_indptr", "raised")}


def test_with_the_candidate_all_is_right(tmp_path: Path) -> None:
    chosen = filters("vllm=rows", "case=forward", "flashinfer", "solo", "c64", "k3", "sm90,sm100", "hybrid_on")
    code, results = run(tmp_path / "run", "--engine", "local", "--candidate", f"rows={PATCH}", *chosen)
    assert (code, [r["state"] for r in results]) == (0, ["pass"] * 2)


def test_the_other_backends_compute_the_definition(tmp_path: Path) -> None:
    """flex_attention where its builder does not raise; the evidence says what computed."""
    chosen = filters(
        "case=forward", "flash_attn,flex_attention,cpu_attn", "small", "c64", "k1", "sm90,cpu", "hybrid_on"
    )
    code, results = run(tmp_path / "run", "--engine", "local", *chosen)
    judged = {r["axes"]["backend"]: r for r in results if r["state"] != "unsupported"}
    assert code == 0
    assert {backend: (r["state"], r["evidence"]) for backend, r in judged.items()} == {
        "flash_attn": ("pass", "emulated"),
        "flex_attention": ("overflow", "emulated"),
        "cpu_attn": ("pass", "cpu"),
    }
    outputs = cases_of(judged["flex_attention"])
    assert {outputs[f"test_outputs_are_right_{name}"]["state"] for name in OUTPUTS} == {"pass"}


def test_tritons_own_kernels_compute_the_definition_in_the_interpreter(tmp_path: Path) -> None:
    chosen = filters("case=forward", "triton_attn", "solo", "c64", "k3", "sm90", "hybrid_on")
    code, results = run(tmp_path / "run", "--engine", "local", "--timeout", "240", *chosen)
    assert (code, [(r["state"], r["evidence"]) for r in results]) == (0, [("pass", "interpreted")])
