"""Run directories with made-up results, for tests of what reads many of them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner import results, rundir
from runner.model import CellResult, Evidence, How, State
from runner.options import RunOptions
from tests.unit import synthetic

FACTS = {
    "vllm": "0.32.0",
    "flashinfer": "0.7.2",
    "torch": "2.13.0+cpu",
    "candidate": "",
    "image_digest": "",
    "base_digest": "",
    "gpu": "",
    "driver": "",
    "machine": "lab1",
    "recipe_digest": "aaaa",
    "hashes": "",
    "cases_digest": "cccc",
}


def row(
    state: State = State.PASS,
    *,
    at: str = "2026-11-29T15:04:00+00:00",
    facts: dict[str, str] | None = None,
    buffer: str = "paged_kv_indptr",
    how: How = How.RAISED,
    **fields,
) -> CellResult:
    """A result of cell `0.32.0-flashinfer-sm90-…` (or what `axes` says) that ended `at`; `facts` differ from FACTS."""
    axes = {"arch": "sm90", **fields.pop("axes", {})}
    vllm = axes.get("vllm", "0.32.0")
    found = [synthetic.overflowed(synthetic.INDPTR, synthetic.overflow(how, buffer=buffer))]
    made = synthetic.cell(state, *(found if state is State.OVERFLOW else ()), axes=axes)
    return replace(made, ended_at=at, environment={**FACTS, "vllm": vllm, **(facts or {})}, **fields)


def write(folder: Path, run_id: str, rows: Sequence[CellResult], *, seed: int = 0, loads: str = "{}") -> Path:
    """A run directory with results."""
    run = folder / run_id
    run.mkdir(parents=True)
    (run / "matrix.yaml").write_text(f"loads: {loads}\n")
    rundir.keep(rundir.RunDirectory(run_id, run), RunOptions(matrix=Path("matrix.yaml"), seed=seed))
    (run / results.NAME).write_text(results.to_json(rows))
    return run


def run_id(number: int) -> str:
    return f"20261129T{number // 3600:02}{number // 60 % 60:02}{number % 60:02}Z-{number:04x}"


def on(evidence: Evidence, one: CellResult) -> CellResult:
    return replace(one, evidence=evidence)


def loads_of(seqs: int) -> str:
    return json.dumps({"solo": {"max_num_seqs": seqs}})
