"""Values that a matrix adds to an axis: they are judged like the others, or it is said why not."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_truths import PROJECT, filters, run

pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]

SHIPPED = {"backend": "flex_attention, cpu_attn]", "arch": "sm103, sm120, cpu]", "chunk": "[64, 1024, 8192]"}
ADDED = {
    "backend": "flex_attention, cpu_attn, b12x, triton_attn_diffkv, flash_attn_diffkv, rocm_attn]",
    "arch": "sm103, sm110, sm120, cpu]",
    "chunk": "[64, 100, 1024, 8192]",
}


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = (PROJECT / "matrix.yaml").read_text()
    for axis, values in SHIPPED.items():
        assert text.count(values) == 1
        text = text.replace(values, ADDED[axis])
    path = tmp_path_factory.mktemp("added") / "matrix.yaml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def found(matrix: Path) -> tuple[int, list[dict[str, Any]]]:
    chosen = "b12x,triton_attn,triton_attn_diffkv,flash_attn_diffkv,rocm_attn,cpu_attn"
    words = filters(chosen, "sm90,sm110", "k1", "c64", "small", "hybrid_on")
    return run(matrix.parent / "run", "--engine", "local", "--matrix", str(matrix), *words)


def of(found: tuple[int, list[dict[str, Any]]], backend: str) -> dict[str, dict[str, Any]]:
    return {row["axes"]["arch"]: row for row in found[1] if row["axes"]["backend"] == backend}


def test_a_package_that_the_lock_lacks_is_the_environments_trouble_with_one_cause(
    found: tuple[int, list[dict[str, Any]]],
) -> None:
    assert found[0] == 3, "no trouble of the product, and trouble of the machine"
    rows = of(found, "b12x")
    assert {row["state"] for row in rows.values()} == {"infra"}
    cases = [case for row in rows.values() for case in row["cases"]]
    assert len({case["message"] for case in cases}) == 1
    assert "add it to the lock of this release" in cases[0]["message"]
    (where,) = {tuple(sorted(case["cause"].items())) for case in cases}
    assert dict(where)["file"] == "vllm/v1/attention/backends/b12x.py"


def test_the_cpus_own_backend_is_unsupported_on_an_arch_that_is_new(found: tuple[int, list[dict[str, Any]]]) -> None:
    assert {arch: row["state"] for arch, row in of(found, "cpu_attn").items()} == dict.fromkeys(
        ("sm90", "sm110"), "unsupported"
    )


@pytest.mark.parametrize("backend", ["triton_attn_diffkv", "flash_attn_diffkv", "rocm_attn"])
def test_a_backend_that_is_new_is_judged_by_all_cases(backend: str, found: tuple[int, list[dict[str, Any]]]) -> None:
    names = {case["name"] for case in of(found, "triton_attn")["sm90"]["cases"]}
    assert {name for name in names if "builder_buffers" in name}
    row = of(found, backend)["sm90"]
    assert {case["name"] for case in row["cases"]} == names
    assert row["state"] == "pass"


def test_a_chunk_that_is_not_whole_pages_is_one_fault_of_vllm_in_every_case(matrix: Path) -> None:
    words = filters("flashinfer,flash_attn,cpu_attn", "sm90,cpu", "k1", "c100", "small", "hybrid_on")
    code, rows = run(matrix.parent / "split", "--engine", "local", "--matrix", str(matrix), *words)
    judged = [row for row in rows if row["state"] != "unsupported"]
    assert (code, {row["state"] for row in judged}) == (1, {"fail"})
    assert len(judged) == 3
    cases = [case for row in judged for case in row["cases"]]
    assert {case["message"] for case in cases} == {
        "AssertionError: attn_chunk_size 100 is not divisible by block_size 32"
    }
    (where,) = {tuple(sorted(case["cause"].items())) for case in cases}
    assert dict(where)["function"] == "make_local_attention_virtual_batches"
