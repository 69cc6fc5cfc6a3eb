"""Candidates with a fault each, on which verdicts were wrong: what the runner says of them, through the whole line."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
PATCHES = PROJECT / "tests/verdicts/patches"
pytestmark = [pytest.mark.env, pytest.mark.timeout(900), pytest.mark.xdist_group("verdicts")]

LONG = """  long: {max_num_seqs: 1, max_num_batched_tokens: 2048, max_model_len: 3600000, block_size: 16,
    num_heads: 4, num_kv_heads: 1, head_size: 128, dtype: bfloat16}
"""


def only(*words: str) -> list[str]:
    """Filters that must all match."""
    return [part for word in words for part in ("--filter", word)]


def runner(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runner", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)


@dataclass(frozen=True)
class Judged:
    """What one run said of some candidates."""

    code: int
    said: str
    rows: tuple[dict[str, Any], ...]

    def of(self, candidate: str, *words: str) -> list[dict[str, Any]]:
        """The rows of a candidate whose id has these words."""
        return [r for r in self.rows if r["axes"]["vllm"] == candidate and all(word in r["id"] for word in words)]


def judge(names: list[str], out: Path, *chosen: str) -> Judged:
    candidates = [word for name in names for word in ("--candidate", f"{name}={PATCHES / name}.patch@0.32.0")]
    done = runner("-q", "--engine", "local", "--out", out, *candidates, *chosen)
    assert (out / "results.json").exists(), done.stdout + done.stderr
    return Judged(done.returncode, done.stdout, tuple(json.loads((out / "results.json").read_text())))


FAULTS = [
    "model_cannot_be_imported", "no_block_size_is_supported", "mask_is_a_bool", "groups_are_lost",
    "block_table_has_one_dimension",
]  # fmt: skip
CELLS = only("flashinfer,flash_attn", "sm90", "k0,k3", "c64", "small", "hybrid=on")
POLICY = """about: these cells pass, or are refused for a reason that the matrix names
accept: [pass, xfail]
refusals: expected
max_age_days: 1
require:
  - name: the cells
    cells: ["flashinfer,flash_attn", "sm90", "k0,k3", "c64", "small", "hybrid=on"]
    evidence: [device, emulated]
    because: they were run
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judged")


@pytest.fixture(scope="module")
def judged(folder: Path) -> Judged:
    """All faults in one run."""
    return judge(FAULTS, folder / "run", *CELLS)


@pytest.fixture(scope="module")
def released(folder: Path) -> Path:
    """The run directory of the same cells as released."""
    done = runner("-q", "--engine", "local", "--out", folder / "released", *CELLS)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "released"


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_worse_than_the_release_and_no_go(
    name: str, judged: Judged, released: Path, folder: Path
) -> None:
    done = runner("compare", "0.32.0", name, "--in", released, "--in", folder / "run")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "got worse" in done.stdout
    policy = folder / "cells.yaml"
    policy.write_text(POLICY)
    done = runner("signoff", folder / "run", "--vllm", name, "--policy", policy, "--out", folder / f"bundle-{name}")
    assert (done.returncode, "NO-GO" in done.stdout) == (1, True), done.stdout + done.stderr


def test_the_release_itself_is_a_go(released: Path, folder: Path) -> None:
    policy = folder / "cells.yaml"
    policy.write_text(POLICY)
    done = runner("signoff", released, "--policy", policy, "--out", folder / "bundle")
    assert (done.returncode, "NO-GO" in done.stdout) == (0, False), done.stdout + done.stderr


def states(rows: list[dict[str, Any]]) -> dict[str, set[str]]:
    """By the state of a case, the cases."""
    found: dict[str, set[str]] = {}
    for row in rows:
        for case in row["cases"]:
            found.setdefault(case["state"], set()).add(case["name"].rpartition("::")[2])
    return found


def test_a_model_that_cannot_be_imported_fails_every_cell_with_the_error_and_its_place(judged: Judged) -> None:
    rows = judged.of("model_cannot_be_imported")
    assert len(rows) == 4
    assert judged.code == 1
    for row in rows:
        assert (row["state"], row["verdict"]) == ("fail", "fail"), row["reason"]
        assert "ModuleNotFoundError: No module named 'vllm_fused_norms'" in row["reason"]
        assert {case["state"] for case in row["cases"]} == {"fail"}
        for case in row["cases"]:
            assert case["cause"]["exception"] == "ModuleNotFoundError"
            assert case["cause"]["file"] == "vllm/model_executor/models/llama4.py"
            assert case["cause"]["line"] == 23


def test_a_vllm_that_supports_no_page_size_is_an_unexpected_refusal(judged: Judged) -> None:
    rows = judged.of("no_block_size_is_supported")
    assert {(row["state"], row["verdict"]) for row in rows} == {("refused", "refused!")}
    assert all("No common block size for 32" in row["reason"] for row in rows)
    assert "refused!" in judged.said


def test_a_boolean_for_the_draft_mask_is_what_vllm_handed_over(judged: Judged) -> None:
    (row,) = judged.of("mask_is_a_bool", "flashinfer", "k3")
    assert "missing" not in states([row])
    assert "test_draft_mask_has_a_row_for_each_window" in states([row])["fail"]
    said = [case for case in row["cases"] if "draft_mask" in case["name"]]
    assert "vLLM handed over metadata.decode.mask: expected a tensor" in said[0]["message"]
    assert said[0]["message"].endswith("got True")
    assert said[0]["cause"]["file"] == "vllm/v1/attention/backends/flashinfer.py"
    assert said[0]["cause"]["function"] == "build"


def test_attention_groups_that_are_lost_are_what_vllm_handed_over(judged: Judged) -> None:
    rows = judged.of("groups_are_lost", "flash_attn")
    assert {row["state"] for row in rows} == {"fail"}
    for row in rows:
        (case,) = (case for case in row["cases"] if case["state"] != "pass")
        assert case["message"].startswith("vLLM handed over the layers of attention groups: expected all of model.")
        assert case["cause"]["file"] == "vllm/v1/worker/gpu/attn_utils.py"


def test_a_block_table_of_the_wrong_thing_is_what_vllm_handed_over(judged: Judged) -> None:
    for row in judged.of("block_table_has_one_dimension", "flashinfer"):
        assert "missing" not in states([row]), row["reason"]
        assert any("vLLM handed over metadata.decode.block_tables" in case["message"] for case in row["cases"])


def test_a_killed_inspection_is_the_machines(tmp_path: Path) -> None:
    killed = judge(["inspection_is_killed"], tmp_path / "run", *only("flash_attn", "k0", "sm90", "c64", "small"))
    for row in killed.rows:
        assert (row["state"], row["verdict"]) == ("infra", "infra"), row["reason"]
        assert "the process in which vLLM inspects the model was ended by SIGKILL" in row["reason"]
    assert killed.code == 3


def test_a_backend_that_a_candidate_renamed_fails_its_cells(tmp_path: Path) -> None:
    found = judge(["backend_is_renamed"], tmp_path / "run", *only("flex_attention", "k0", "sm90", "c64", "small"))
    assert found.code == 1
    for row in found.rows:
        assert row["state"] == "fail"
        assert "has no attention backend flex_attention; it has" in row["reason"]


def test_a_backend_that_the_release_has_not_is_a_mistake_of_the_matrix(tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.yaml"
    text = (PROJECT / "matrix.yaml").read_text()
    assert text.count("cpu_attn]\n  arch") == 1
    matrix.write_text(text.replace("cpu_attn]\n  arch", "cpu_attn, tree_attn]\n  arch"))
    line = next(n for n, one in enumerate(matrix.read_text().splitlines(), 1) if "tree_attn" in one)
    chosen = only("tree_attn", "sm90", "k0", "c64", "small")
    done = runner("--matrix", matrix, "--engine", "local", "--out", tmp_path / "run", "-q", *chosen)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{matrix}:{line}:" in done.stderr
    assert "vllm 0.32.0 has no attention backend 'tree_attn', did you mean" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run/results.json").exists(), "no cell ran"


def test_a_load_longer_than_any_model_of_ours_runs(tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.yaml"
    text = (PROJECT / "matrix.yaml").read_text()
    matrix.write_text(text.replace("loads:\n", "loads:\n" + LONG, 1).replace("load: [solo, ", "load: [long, solo, "))
    chosen = only("long", "flash_attn,flashinfer", "sm90", "k0", "c64", "hybrid=on")
    done = runner("--matrix", matrix, "--engine", "local", "--out", tmp_path / "run", "-q", *chosen)
    rows = {row["axes"]["backend"]: row for row in json.loads((tmp_path / "run/results.json").read_text())}
    assert rows["flash_attn"]["state"] == "pass", done.stdout
    assert rows["flashinfer"]["state"] == "overflow", "judged like any other load"
