"""A sign-off of what real vLLM did here, without a GPU: NO-GO for want of a device, and a bundle that holds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]


def runner(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runner", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)


def test_a_release_without_a_gpu_is_no_go_and_says_which_device_evidence_is_missing(tmp_path: Path) -> None:
    chosen = ["--filter", "flash_attn,cpu_attn", "--filter", "c64", "--filter", "k0,k3", "--filter", "small"]
    run, out = tmp_path / "run", tmp_path / "bundle"
    done = runner("--engine", "local", "--out", run, "-q", *chosen)
    assert done.returncode == 0, done.stderr
    said = runner("signoff", run, "--policy", "release", "--out", out)
    assert said.returncode == 1, said.stderr
    assert said.stdout.startswith("NO-GO: vLLM 0.32.0 by policy release\n")
    record = json.loads((out / "signoff.json").read_text())
    gaps = {one["id"]: {gap["gap"] for gap in one["gaps"]} for one in record["cells"]}
    assert gaps["0.32.0-flash_attn-sm100-hybrid_on-k0-c64-small"] == {"evidence"}
    assert gaps["0.32.0-flashinfer-sm100-hybrid_on-k0-c64-small"] == {"absent"}
    assert gaps["0.32.0-flash_attn-sm80-hybrid_on-k0-c64-small"] == set()
    assert gaps["0.32.0-cpu_attn-cpu-hybrid_off-k3-c64-small"] == set()
    digest = said.stdout.split()[-1]
    verified = runner("verify", out, "--digest", digest, "--json")
    found = json.loads(verified.stdout)
    assert (found["holds"], found["decision"], found["digest"], found["findings"]) == (True, "NO-GO", digest, [])
