"""What vLLM 0.32.0 makes of what is off by default, through the whole line; read in its source first."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]

WANTED: dict[str, tuple[str, str]] = {
    # cell: (state, what the reason says)
    # Attention.supports_kv_cache_dtype of each backend; that of FlashAttention is up to compiled code on sm90
    "triton_attn-sm90-hybrid_on-k3-c64-small-kv_fp8": ("pass", ""),
    "triton_attn-sm90-hybrid_on-k3-c64-small-kv_nvfp4": ("refused", "kv_cache_dtype not supported"),
    "flash_attn-sm80-hybrid_on-k3-c64-small-kv_fp8": ("refused", "FP8 KV cache requires FA3 on SM90"),
    "flash_attn-sm90-hybrid_on-k3-c64-small-kv_fp8": ("skipped", "compiled code that only a device has"),
    # FlashInferBackend.supports_combination
    "flashinfer-sm90-hybrid_on-k3-c64-small-kv_nvfp4-head64": ("refused", "misreads an NVFP4 KV cache at head_size 64"),
    # VllmConfig.__post_init__: no hybrid manager for chunked local attention with EAGLE
    "triton_attn-sm90-hybrid_on-k3-c64-small-eagle": ("unsupported", "no hybrid manager for chunked local attention"),
    "triton_attn-sm90-hybrid_off-k3-c64-small-eagle": ("pass", ""),
    # FlashInferBackend.get_supported_kernel_block_sizes: above 64 on sm100 only, and not without grouped heads
    "flashinfer-sm90-hybrid_on-k0-c8192-small-page128": ("overflow", "paged_kv_indptr"),
    "flashinfer-sm90-hybrid_on-k0-c64-server-page128": ("overflow", "paged_kv_indptr"),
    "flashinfer-sm100-hybrid_on-k0-c8192-small-group1-page128": ("overflow", "paged_kv_indptr"),
    "triton_attn-sm90-hybrid_on-k0-c8192-small-page128": ("pass", ""),
    "triton_attn-sm90-hybrid_on-k0-c64-small-page128": ("fail", "chunk_size 64 is not divisible by block_size 128"),
    # CPUAttentionBackend.get_supported_kernel_block_sizes
    "cpu_attn-cpu-hybrid_on-k0-c64-small-page16": ("refused", "No common block size for 16"),
    # CompilationConfig.resolve_cudagraph_mode_and_sizes, with a builder that takes graphs NEVER
    "triton_attn-sm90-hybrid_on-k0-c64-small-cudagraph_full": ("refused", "please try cudagraph_mode=PIECEWISE"),
    "triton_attn-sm90-hybrid_on-k0-c64-small-cudagraph_piecewise": ("pass", ""),
    "triton_attn-sm90-hybrid_on-k0-c64-small": ("pass", ""),
    "triton_attn-sm90-hybrid_on-k0-c64-small-head256-group8": ("pass", ""),
}
RESOLVED: dict[str, dict[str, Any]] = {
    "triton_attn-sm90-hybrid_on-k3-c64-small-kv_fp8": {"kv_dtype": "fp8_per_tensor"},
    "triton_attn-sm90-hybrid_off-k3-c64-small-eagle": {"hybrid": "off", "kv_dtype": "bfloat16", "kv_layout": "lbnhc"},
    "triton_attn-sm90-hybrid_on-k0-c8192-small-page128": {"block_size": 128, "kernel_block_size": 128},
    # the manager's blocks of 128 are cut into two pages of the kernel each: judged in these
    "flashinfer-sm90-hybrid_on-k0-c8192-small-page128": {"block_size": 128, "kernel_block_size": 64},
    "flashinfer-sm100-hybrid_on-k0-c8192-small-group1-page128": {"block_size": 128, "kernel_block_size": 64},
    "triton_attn-sm90-hybrid_on-k0-c64-small-cudagraph_piecewise": {"cudagraph": "piecewise"},
    # the default, FULL_AND_PIECEWISE, is lowered: recorded, no failure
    "triton_attn-sm90-hybrid_on-k0-c64-small": {"cudagraph": "piecewise", "cudagraph_support": "never"},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The results of these cells, by id without the release."""
    out = tmp_path_factory.mktemp("routes") / "run"
    chosen = ",".join(f"0.32.0-{cell}" for cell in WANTED)
    command = [sys.executable, "-m", "runner", "--out", str(out), "-q", "--engine", "local", "--no-known"]
    done = subprocess.run([*command, "--filter", chosen], capture_output=True, text=True, check=False, cwd=PROJECT)
    assert (out / "results.json").exists(), done.stderr
    return {row["id"].removeprefix("0.32.0-"): row for row in json.loads((out / "results.json").read_text())}


def test_exactly_these_cells_ran(found: dict[str, dict[str, Any]]) -> None:
    assert found.keys() == WANTED.keys()


def test_nothing_that_vllm_does_by_design_is_trouble_of_the_harness(found: dict[str, dict[str, Any]]) -> None:
    assert not {row["state"] for row in found.values()} & {"substituted", "missing", "infra"}


@pytest.mark.parametrize("cell", WANTED)
def test_the_cell_says_what_vllm_makes_of_it(cell: str, found: dict[str, dict[str, Any]]) -> None:
    state, reason = WANTED[cell]
    assert found[cell]["state"] == state, found[cell]["reason"]
    assert reason in found[cell]["reason"]
    if state == "refused":
        assert found[cell]["verdict"] == "refused", "the matrix expects each of these"
        assert found[cell]["expected"]


@pytest.mark.parametrize("cell", RESOLVED)
def test_what_it_is_served_by_is_recorded(cell: str, found: dict[str, dict[str, Any]]) -> None:
    assert found[cell]["resolved"].items() >= RESOLVED[cell].items()


def test_an_fp8_cache_that_the_layer_drops_is_a_fault_of_vllm(tmp_path: Path) -> None:
    """A candidate whose chunked layer does not hand the cache's configuration on."""
    patch = Path(__file__).parent / "dropped_cache_config.patch"
    command = [sys.executable, "-m", "runner", "--out", str(tmp_path / "run"), "-q", "--engine", "local"]
    chosen = "drop-triton_attn-sm90-hybrid_on-k3-c64-small-kv_fp8"
    command += ["--candidate", f"drop={patch}", "--filter", chosen]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    (row,) = json.loads((tmp_path / "run" / "results.json").read_text())
    assert (done.returncode, row["state"]) == (1, "fail")
    assert "asked for a KV cache of fp8, vLLM's has bfloat16 and said nothing" in row["reason"]
