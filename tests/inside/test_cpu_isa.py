"""The CPU's own backend on other CPUs: with AMX, with AVX-512 alone, with AVX2."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

PROJECT = Path(__file__).parents[2]
SMALL = {
    "name": "small", "max_num_seqs": 4, "max_num_batched_tokens": 2048, "max_model_len": 16384, "block_size": 32,
    "num_heads": 8, "num_kv_heads": 2, "head_size": 128, "dtype": "bfloat16",
}  # fmt: skip
AXES = {"vllm": "any", "backend": "cpu_attn", "arch": "cpu", "hybrid": "on", "spec_k": 1, "chunk": 64, "load": "small"}
ATTENTION = ["cpu_attn_get_scheduler_metadata", "cpu_attn_reshape_and_cache", "cpu_attention_with_kv_cache"]


def forward(cpu: str, folder: Path, **axes: str) -> dict[str, Any]:
    """What the forward cases said of a cell of cpu_attn in bfloat16, on a CPU that is presented."""
    cells, notes = folder / "cells.json", folder / "notes.json"
    axes = AXES | {"case": "forward"} | axes
    cells.write_text(json.dumps([{"id": "cell", "axes": axes, "load": SMALL, "evidence": "cpu"}]))
    about = {"PRESENTED_CPU": cpu, "PRESENTED_NOTES": str(notes)}
    about |= {"ATTNMATRIX_CASE": "forward", "ATTNMATRIX_EVIDENCE": "cpu"}
    words = ["-q", "-p", "no:cacheprovider", "-p", "tests.inside.presented_cpu", "--cells", str(cells)]
    command = [sys.executable, "-m", "pytest", "cases", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=PROJECT, env={**os.environ, **about}
    )
    assert notes.exists(), done.stdout[-4000:] + done.stderr[-4000:]
    said: dict[str, Any] = json.loads(notes.read_text())
    assert said["states"], done.stdout[-4000:]
    return said


BUILDS = ["avx2"]
"""The builds of vLLM's kernels that this CPU can run."""
if torch.cpu._is_avx512_supported():
    BUILDS.append("avx512")
    if torch.cpu._is_avx512_bf16_supported():
        BUILDS.append("avx512_bf16")


def kernels(said: dict[str, Any]) -> set[tuple[str, str]]:
    return {(resolved.get("isa"), resolved.get("cpu_build")) for resolved in said["resolved"]}


def test_where_torch_sees_amx_its_tiles_are_asked_for_before_attention_uses_them(tmp_path: Path) -> None:
    said = forward("amx", tmp_path)
    assert {state for state, _ in said["states"]} == {"pass"}
    assert said["calls"][0] == "init"
    assert set(ATTENTION) <= set(said["calls"])
    assert kernels(said) == {("amx", BUILDS[-1])}


@pytest.mark.parametrize("cpu", BUILDS)
def test_without_amx_the_kernel_of_the_cpu_is_judged_and_named(cpu: str, tmp_path: Path) -> None:
    """Each is another library of the same wheel: it is loaded and computes."""
    said = forward(cpu, tmp_path)
    assert {state for state, _ in said["states"]} == {"pass"}
    assert set(ATTENTION) <= set(said["calls"])
    assert kernels(said) == {("vec", cpu)}


def test_an_fp8_cache_that_avx2_does_not_take_is_refused_in_the_words_of_vllm(tmp_path: Path) -> None:
    said = forward("avx2", tmp_path, kv_dtype="fp8")
    assert {state for state, _ in said["states"]} == {"refused"}
    assert "requires x86 with AVX-512 or AMX" in said["states"][0][1]


def test_tiles_that_the_operating_system_denies_are_the_machines_trouble_and_no_death(tmp_path: Path) -> None:
    said = forward("amx_denied", tmp_path)
    (state,) = {state for state, _ in said["states"]}
    assert state == "infra"
    words = said["states"][0][1]
    assert "AMX" in words
    assert "Linux 5.16" in words
    assert "cpu_attention_with_kv_cache" not in said["calls"]
