"""Small builders with one fault each, in a deployment without vLLM's configuration."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cases import extents
from cases.cell import Cell, Load
from cases.verdicts import Batch

CHUNK, PAGE = 4, 2
ONE = Batch((1,), (2,))
THREE = Batch((9,), (9,))
"""Three rows of 4, 4 and 1 tokens, in 5 pages: more than what is sized by one request."""


def cell(max_num_seqs: int = 1, tokens: int = 16, length: int = 17) -> Cell:
    load = Load("fake", max_num_seqs, tokens, length, PAGE, 8, 2, 128, "bfloat16")
    return Cell("fake", "0", "fake", "sm80", True, 0, CHUNK, load, "emulated")


def auditor(monkeypatch: pytest.MonkeyPatch, make: Any, of: Cell | None = None) -> extents.Auditor:
    """An auditor of builders that `make` makes; their `build` gets the batch's page counts."""
    deployment = SimpleNamespace(
        cell=of or cell(), pattern=(of or cell()).pattern, spec=SimpleNamespace(block_size=PAGE), new_builder=make
    )
    monkeypatch.setattr(extents.vllm_api, "step", lambda deployment, batch, **_: batch)

    def build(_deployment: Any, builder: Any, batch: Batch) -> Any:
        need = found.need(batch)
        return builder.build(torch.from_numpy(need.pages), need)

    monkeypatch.setattr(extents.vllm_api, "build", build)
    found = extents.Auditor(deployment)  # type: ignore[arg-type]
    return found
