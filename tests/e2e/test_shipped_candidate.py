"""docs/candidates/flashinfer_rows.patch: with it FlashInfer's cells of 0.32.0 pass; with one row less they do not."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
PATCH = PROJECT / "docs/candidates/flashinfer_rows.patch"
CELLS = ["--filter", "flashinfer,spec_k=0,spec_k=1,spec_k=3", "--filter", "c64,solo,small"]
"""Both settings of the hybrid manager, every arch."""
pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]


def verdicts(patch: str, folder: Path) -> list[dict[str, Any]]:
    (folder / "rows.patch").write_text(patch)
    command = [sys.executable, "-m", "runner", "-q", "--engine", "local", "--out", str(folder / "run"), *CELLS]
    candidate = ["--candidate", f"rows={folder / 'rows.patch'}@0.32.0"]
    done = subprocess.run([*command, *candidate], capture_output=True, text=True, check=False, cwd=PROJECT)
    assert (folder / "run/results.json").exists(), done.stderr
    found: list[dict[str, Any]] = json.loads((folder / "run/results.json").read_text())
    return found


def test_every_cell_passes_with_it(tmp_path: Path) -> None:
    rows = verdicts(PATCH.read_text(), tmp_path)
    assert {row["axes"]["arch"] for row in rows if row["verdict"] == "pass"} == {
        "sm80", "sm89", "sm90", "sm100", "sm103", "sm120",
    }  # fmt: skip
    assert {row["axes"]["hybrid"] for row in rows} == {"on", "off"}
    assert {row["id"]: row["reason"] for row in rows if row["verdict"] not in ("pass", "unsupported")} == {}


def test_one_row_less_is_caught_again(tmp_path: Path) -> None:
    less = PATCH.read_text()
    for bound in ("first + second + further)", "self.max_num_batched_tokens // q_len))"):
        assert less.count(bound) == 1
        less = less.replace(bound, f"{bound} - 1")
    rows = [row for row in verdicts(less, tmp_path) if row["verdict"] != "unsupported"]
    assert {row["verdict"] for row in rows} == {"overflow"}
    # One request of 36,000 tokens over chunks of 64 makes 2 + (36000 - 63 - 2) // 64 = 563 rows; four requests in 2,048
    # tokens 8 + (2048 - 8) // 64 = 39. Two windows each: of 1 request 2, of 4 requests 8.
    found = {(row["axes"]["load"], o["buffer"], o["required"], o["allocated"]) for row in rows for o in row["overflow"]}
    assert {
        ("solo", "paged_kv_indptr", 564, 563),
        ("small", "paged_kv_indptr", 40, 39),
        ("solo", "xqa_draft_mask", 2, 1),
        ("small", "xqa_draft_mask", 8, 7),
    } <= found
