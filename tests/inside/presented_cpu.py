"""A pytest plugin that presents another CPU by what torch and vLLM ask, and notes in what order attention asks for it.

`PRESENTED_CPU` is `amx`, `amx_denied` (the operating system gives no tiles), `avx512_bf16`, `avx512` (without BF16) or
`avx2`. The last three are real: vLLM loads its build for them. AMX is played: what is asked of its kernel is done by
another, so that any CPU can.
`PRESENTED_NOTES` is the file of the notes.
"""

import json
import os
from pathlib import Path
from typing import Any

import torch

CPU = os.environ["PRESENTED_CPU"]
NOTES: dict[str, Any] = {"calls": [], "resolved": [], "states": []}

_avx512, _bf16 = torch.cpu._is_avx512_supported(), torch.cpu._is_avx512_bf16_supported()
torch.cpu._is_amx_tile_supported = lambda: CPU.startswith("amx")
torch.cpu._is_avx512_supported = lambda: _avx512 and CPU != "avx2"
torch.cpu._is_avx512_bf16_supported = lambda: _bf16 and CPU not in ("avx512", "avx2")


def _init_amx() -> bool:
    NOTES["calls"].append("init")
    return CPU == "amx"


torch._C._cpu._init_amx = _init_amx

from cases import arch  # noqa: E402, F401 - before vLLM, as in the cases

# isort: split
from vllm import _custom_ops  # noqa: E402


def _played(name: str) -> None:
    real = getattr(_custom_ops, name)

    def play(*args: Any, **options: Any) -> Any:
        NOTES["calls"].append(name)
        given = {key: "vec" if value == "amx" else value for key, value in options.items()}
        return real(*("vec" if isinstance(arg, str) and arg == "amx" else arg for arg in args), **given)

    setattr(_custom_ops, name, play)


for _name in ("cpu_attn_get_scheduler_metadata", "cpu_attn_reshape_and_cache", "cpu_attention_with_kv_cache"):
    _played(_name)


def pytest_runtest_logreport(report: Any) -> None:
    if known := getattr(report, "attnmatrix", None):
        NOTES["resolved"].append(known["resolved"])
        NOTES["states"].append([known["state"], known["message"]])


def pytest_sessionfinish() -> None:
    Path(os.environ["PRESENTED_NOTES"]).write_text(json.dumps(NOTES))
