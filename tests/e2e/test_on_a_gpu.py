"""containers/on-a-gpu.sh on a machine without a GPU: a driver that is played, the real worker in a real environment.

Everything but the kernels: the arch that the driver names chooses the cells, their evidence is `device`, the worker has
the Python that was named and presents nothing. So the cases find no CUDA device, and say so: `substituted`.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from runner import matrix
from runner.environments.recipe import recipe_for
from tests.mutants.client import PROJECT, python

pytestmark = [pytest.mark.env, pytest.mark.timeout(600)]

NVML = '''
"""NVML with one H200, by the interface of nvidia-ml-py."""
from types import SimpleNamespace


class NVMLError(Exception):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_DriverNotLoaded(NVMLError):
    pass


class NVMLError_NoPermission(NVMLError):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


def not_supported(*_): raise NVMLError_NotSupported


NVML_MEMORY_ERROR_TYPE_UNCORRECTED = NVML_VOLATILE_ECC = 0
nvmlDeviceGetMigMode = nvmlDeviceGetTotalEccErrors = nvmlDeviceGetRetiredPagesPendingStatus = not_supported
nvmlDeviceGetRemappedRows = nvmlEventSetCreate = not_supported


def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlSystemGetDriverVersion(): return "580.95.05"
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetHandleByUUID(uuid): return 0
def nvmlDeviceGetUUID(handle): return "GPU-0"
def nvmlDeviceGetName(handle): return "NVIDIA H200"
def nvmlDeviceGetCudaComputeCapability(handle): return (9, 0)
def nvmlDeviceGetMemoryInfo(handle): return SimpleNamespace(total=143771 << 20, free=143000 << 20)
'''


def on_a_gpu(
    tmp_path: Path, *options: str, smi: str = "echo 9.0", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the script with an nvidia-smi that does `smi`, and with NVML played."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvidia-smi").write_text(f"#!/bin/sh\n{smi}\n")
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    (tmp_path / "pynvml.py").write_text(NVML)
    env = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)} | variables
    command = [str(PROJECT / "containers/on-a-gpu.sh"), *options]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)


def test_the_cells_of_the_gpus_arch_run_with_evidence_device(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ["--filter", "flash_attn,k0,c64,small,hybrid_on", "--out", str(out)]
    done = on_a_gpu(tmp_path, *options, ATTNMATRIX_CUDA_PYTHON=str(python()))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "GPUs: sm90" in done.stderr
    (row,) = json.loads((out / "results.json").read_text())
    assert (row["id"], row["evidence"]) == ("0.32.0-flash_attn-sm90-hybrid_on-k0-c64-small", "device")
    assert row["state"] == "substituted"
    assert "torch sees no CUDA device here" in row["reason"]
    about = row["environment"]
    assert (about["gpu"], about["driver"], about["vllm"]) == ("NVIDIA H200", "580.95.05", "0.32.0")
    ours = recipe_for(matrix.load(PROJECT / "matrix.yaml"), "0.32.0").digest
    assert re.fullmatch(r"[0-9a-f]{16}", about["recipe_digest"])
    assert about["recipe_digest"] != ours, "it is of the packages installed there, which are none of our recipes"


@pytest.mark.parametrize(
    ("smi", "variables", "words"),
    [
        ("echo NVIDIA-SMI has failed; exit 9", {}, "nvidia-smi does not answer: NVIDIA-SMI has failed"),
        ("echo '[N/A]'", {}, "gives no compute capability, but '[N/A]'"),
        ("echo 9.0", {"ATTNMATRIX_CUDA_PYTHON": "/nowhere/python"}, "containers/on-a-gpu.sh makes one"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, smi: str, variables: dict[str, str], words: str) -> None:
    done = on_a_gpu(tmp_path, smi=smi, **variables)
    assert done.returncode == 3, done.stdout + done.stderr
    assert words in done.stderr
