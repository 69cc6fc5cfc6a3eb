"""A patch, or a checkout, is really what the cells import: the whole line with real changes of vLLM."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]

# vLLM 0.32.0 sizes its paged-KV buffers by max_num_seqs. One request of 36,000 tokens over chunks of 64 makes most
# virtual batches if its step begins at the last token of a chunk: 36000 - 63 tokens, 2 + (36000 - 63 - 2) // 64 = 563.
ENOUGH = """\
--- a/vllm/v1/attention/backends/flashinfer.py
+++ b/vllm/v1/attention/backends/flashinfer.py
@@ -773,7 +773,7 @@
         max_num_pages_per_req = cdiv(
             self.model_config.max_model_len, self.kv_cache_spec.block_size
         )
-        max_num_reqs = vllm_config.scheduler_config.max_num_seqs
+        max_num_reqs = 563
         self.max_num_reqs = max_num_reqs
         max_num_pages = max_num_reqs * max_num_pages_per_req
         # Persistent uniform masks keep stable addresses for CUDA graphs.
"""
FILTERS = ["--filter", "flashinfer,solo,c64,k0,sm80"]


FEW = """\
--- a/vllm/v1/attention/backends/utils.py
+++ b/vllm/v1/attention/backends/utils.py
@@ -521,2 +521,4 @@
     q_seqlens = query_start_loc_np[1:] - query_start_loc_np[:-1]
+    if len(q_seqlens) > 2:
+        raise AssertionError(f"no room for {len(q_seqlens)} requests of {q_seqlens.tolist()[:5]}")
     actual_batch_size = seq_lens_np.shape[0]
"""


def runner(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runner", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)


def results(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / "results.json").read_text())
    return found


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    folder = tmp_path_factory.mktemp("fixed")
    (folder / "fix.patch").write_text(ENOUGH)
    candidate = f"fix={folder / 'fix.patch'}@0.32.0"
    done = runner("--engine", "local", "-q", "--out", str(folder / "run"), "--candidate", candidate, *FILTERS)
    assert (folder / "run/results.json").exists(), done.stderr
    (folder / "fix.patch").unlink()  # the run directory has it
    return done.returncode, folder / "run"


def test_a_patch_that_gives_enough_rows_passes_where_the_release_overflows(fixed: tuple[int, Path]) -> None:
    code, out = fixed
    assert code == 0
    assert {row["id"]: row["verdict"] for row in results(out)} == {
        "fix-flashinfer-sm80-hybrid_on-k0-c64-solo": "pass",
        "fix-flashinfer-sm80-hybrid_off-k0-c64-solo": "pass",
    }
    for row in results(out):
        assert row["environment"]["vllm"] == "0.32.0"
        assert row["environment"]["candidate"].startswith(f"patch {out}/candidates/fix.patch ")


def test_one_row_less_is_caught_and_no_known_issue_hides_it(tmp_path: Path) -> None:
    (tmp_path / "less.patch").write_text(ENOUGH.replace("= 563", "= 562"))
    candidate = f"less={tmp_path / 'less.patch'}@0.32.0"
    done = runner("--engine", "local", "-q", "--out", str(tmp_path / "run"), "--candidate", candidate, *FILTERS)
    assert done.returncode == 1, done.stderr
    for row in results(tmp_path / "run"):
        assert row["verdict"] == "overflow"
        assert {(o["buffer"], o["required"], o["allocated"]) for o in row["overflow"]} == {
            ("paged_kv_indptr", 564, 563)
        }


def test_an_assertion_that_all_backends_meet_is_one_group_that_names_its_line(tmp_path: Path) -> None:
    """It was 42 groups: one for each case that met it, and that for each backend."""
    (tmp_path / "few.patch").write_text(FEW)
    chosen = ["--filter", "flashinfer,flash_attn,triton_attn", "--filter", "small", "--filter", "c64,k0,sm90,hybrid=on"]
    candidate = ["--candidate", f"few={tmp_path / 'few.patch'}@0.32.0"]
    done = runner("--engine", "local", "--out", str(tmp_path / "run"), *candidate, *chosen)
    assert done.returncode == 1, done.stderr
    causes = {
        (case["cause"]["file"], case["cause"]["line"], case["cause"]["function"])
        for row in results(tmp_path / "run")
        for case in row["cases"]
        if case["cause"] and case["cause"]["exception"] == "AssertionError"
    }
    assert causes == {("vllm/v1/attention/backends/utils.py", 523, "make_local_attention_virtual_batches")}
    heads = [line for line in done.stdout.splitlines() if line.startswith(("fail", "overflow"))]
    assert [line for line in heads if line.startswith("fail")] == [
        "fail at utils.py:523 · flashinfer, flash_attn, triton_attn · 3 cells · emulated"
    ]
    assert heads[0].startswith("overflow raised in paged_kv_indptr · flashinfer · 1 cell")


def test_its_repro_line_shows_it_again(fixed: tuple[int, Path]) -> None:
    line = results(fixed[1])[0]["repro"]
    done = runner(*shlex.split(line)[1:], "--engine", "local")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "site-packages/vllm/ in what follows is a copy of patch" in done.stderr
    assert "vllm-fix-" in done.stdout.splitlines()[0], "the candidate's own environment"


def test_a_patch_that_does_not_apply_ends_the_run_with_the_hunk(tmp_path: Path) -> None:
    (tmp_path / "fix.patch").write_text(ENOUGH.replace("config.max_num_seqs", "config.max_num_sequences"))
    candidate = f"fix={tmp_path / 'fix.patch'}@0.32.0"
    done = runner("--engine", "local", "-q", "--out", str(tmp_path / "run"), "--candidate", candidate, *FILTERS)
    assert done.returncode == 2
    where = "hunk 1 of vllm/v1/attention/backends/flashinfer.py, @@ -773,7 +773,7 @@"
    assert f"does not fit vLLM 0.32.0: {where}, does not apply: line 776 should be" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout as git would make it of vLLM 0.32.0: its sources, and nothing that is built."""
    built = subprocess.run(
        [sys.executable, "-m", "runner", "env", "build", "0.32.0", "--engine", "local"],
        capture_output=True, text=True, check=True, cwd=PROJECT,
    )  # fmt: skip
    (package,) = Path(built.stdout.strip()).parents[1].glob("lib/python3*/site-packages/vllm")
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "_version.py")
    shutil.copytree(package, tmp_path / "tree/vllm", ignore=ignored)
    return tmp_path / "tree"


def ran(tmp_path: Path, tree: Path, filters: str) -> tuple[int, str, list[dict[str, Any]]]:
    done = runner(
        "--engine", "local", "--out", str(tmp_path / "run"), "--candidate", f"mine={tree}", "--filter", filters
    )
    assert (tmp_path / "run/results.json").exists(), done.stderr
    return done.returncode, done.stderr, results(tmp_path / "run")


def test_a_checkout_in_which_a_package_of_the_wheel_is_a_module_runs_after_one_import(
    tmp_path: Path, tree: Path
) -> None:
    """vllm/multimodal/cache/ of 0.32.0 as one file, vllm/multimodal/cache.py."""
    package = tree / "vllm/multimodal/cache"
    text = f"# {uuid.uuid4()}: a content that no earlier run has built\n"
    for name in ("base", "lru", "shm", "factories"):
        text += re.sub(r"^from \.\w+ import \([^)]*\)\n", "", (package / f"{name}.py").read_text(), flags=re.MULTILINE)
    shutil.rmtree(package)
    package.with_suffix(".py").write_text(re.sub(r"^(\s*)from \.\.", r"\1from .", text, flags=re.MULTILINE))
    code, said, rows = ran(tmp_path, tree, "flash_attn,sm90,k1,c64,solo,hybrid=on")
    assert (code, [row["verdict"] for row in rows]) == (0, ["pass"])
    assert "over 0.32.0, of those that are here the one most like it" in said
    assert "files that differ from vllm 0.32.0: 1, that are gone: 5" in said
    assert said.count("importing") == 1, "and none before the worker's"
    assert "checking that it imports" not in said


def test_a_checkout_without_a_module_of_the_wheel_fails_by_the_name_of_its_own_file(tmp_path: Path, tree: Path) -> None:
    (tree / "vllm/v1/attention/backends/flashinfer.py").unlink()
    code, said, rows = ran(tmp_path, tree, "flashinfer,sm90,k1,c64,solo,hybrid=on")
    assert (code, [row["verdict"] for row in rows]) == (1, ["fail"])
    assert "over 0.32.0" in said
    assert "cannot import name 'flashinfer' from 'vllm.v1.attention.backends'" in rows[0]["reason"]
    assert f"({tree}/vllm/v1/attention/backends/__init__.py)" in rows[0]["reason"]
    assert "site-packages" not in json.dumps(rows)
