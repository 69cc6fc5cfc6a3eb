"""Whole engines through the whole line: what is right passes, what overflows tells the prompts, faults turn red."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
FAULTS = PROJECT / "tests/engine_faults"
pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]

Rows = dict[str, dict[str, Any]]


def run(out: Path, *filters: str, fault: str = "") -> Rows:
    """The results of cells of case=engine, by id."""
    command = [sys.executable, "-m", "runner", "-q", "--engine", "local", "--no-known", "--out", str(out)]
    command += ["--timeout", "600"]  # a cell takes seconds, and a minute on a machine that is busy with other things
    if fault:
        command += ["--candidate", f"fault={FAULTS / fault}.patch@0.32.0"]
    for expression in ("case=engine", "c64", *filters):
        command += ["--filter", expression]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert (out / "results.json").exists(), done.stderr
    found = json.loads((out / "results.json").read_text())
    return {row["id"]: row for row in found if row["state"] != "unsupported"}


def states(row: dict[str, Any]) -> dict[str, str]:
    return {case["name"]: case["state"] for case in row["cases"]}


def test_the_cpu_backend_holds_all(tmp_path: Path) -> None:
    rows = run(tmp_path / "run", "cpu_attn", "k0,k3", "small")
    assert {(row["axes"]["hybrid"], row["axes"]["spec_k"]) for row in rows.values()} == {
        ("on", 0), ("on", 3), ("off", 0), ("off", 3),
    }  # fmt: skip
    for id_, row in rows.items():
        assert set(states(row).values()) == {"pass"}, id_
        assert row["evidence"] == "cpu"
        assert row["resolved"]["needle_score"] == 1.0, id_
        assert row["resolved"]["logprob_gap"] < 1e-4, id_
        assert row["resolved"]["kv_groups"] == (4 if row["axes"]["hybrid"] == "on" else 1), id_


@pytest.fixture(scope="module")
def sm90(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    out = tmp_path_factory.mktemp("sm90") / "run"
    return run(out, "flashinfer", "sm90", "k0,k3", "solo,small,server")


def test_flashinfer_is_right_where_its_buffers_hold(sm90: Rows) -> None:
    server = [row for row in sm90.values() if row["axes"]["load"] == "server"]
    assert len(server) == 4
    for row in server:
        assert set(states(row).values()) == {"pass"}, row["id"]
        assert row["evidence"] == "emulated"
        assert row["resolved"]["decode_kernel"] == "xqa"


def test_four_requests_of_which_one_is_longer_than_a_chunk_overflow(sm90: Rows) -> None:
    # prompts of 16, 63, 64 and 65 tokens: the last has two rows, so there are 5 rows and 6 pointers, and 4 + 1 entries
    small = [row for row in sm90.values() if row["axes"]["load"] == "small"]
    assert len(small) == 4
    for row in small:
        assert states(row)["test_tokens_are_those_of_the_model"] == "pass", row["id"]
        (found,) = row["overflow"]
        assert (found["buffer"], found["required"], found["allocated"], found["how"]) == (
            "paged_kv_indptr", 6, 5, "raised",
        )  # fmt: skip
        assert found["batch"] == {"query_lens": [16, 63, 64, 65], "seq_lens": [16, 63, 64, 65]}
        (said,) = (case["message"] for case in row["cases"] if case["state"] == "overflow")
        assert "prompts of 16, 63, 64, 65 tokens" in said


def test_one_request_overflows_and_the_engine_tells_which(sm90: Rows) -> None:
    for row in (row for row in sm90.values() if row["axes"]["load"] == "solo"):
        found = {o["buffer"]: (o["required"], o["allocated"], o["how"]) for o in row["overflow"]}
        assert found["paged_kv_indptr"] == (3, 2, "raised"), row["id"]  # a prompt of two chunks: 2 rows, 3 pointers
        if row["axes"]["spec_k"] == 3:  # a window of 4 that a boundary cuts 2 + 2: two rows of one length
            assert found["xqa_draft_mask"] == (2, 1, "short"), row["id"]


@pytest.mark.parametrize(
    ("fault", "cell", "red"),
    [
        ("builder_of_the_group", "cpu_attn,hybrid=off,k0,small", "test_needles_are_found"),
        ("chunk_of_the_group", "cpu_attn,hybrid=off,k0,small", "test_needles_are_found"),
        ("pages_of_the_first_group", "flash_attn,sm90,hybrid=on,k0,small", "test_needles_are_found"),
        ("freed_too_soon", "cpu_attn,hybrid=on,k0,small", "test_answers_do_not_come_from_freed_blocks"),
    ],
)
def test_a_fault_of_the_past_turns_its_cell_red(tmp_path: Path, fault: str, cell: str, red: str) -> None:
    rows = run(tmp_path / "run", *cell.split(","), fault=fault)
    (row,) = (row for id_, row in rows.items() if "fault" in id_)
    assert row["state"] == "fail"
    assert states(row)[red] == "fail"
    if red == "test_needles_are_found":
        assert row["resolved"]["needle_score"] <= 0.5
