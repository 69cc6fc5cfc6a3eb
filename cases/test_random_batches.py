"""Batches that nobody thought of: drawn from a seed, the same again for the same seed and cell."""

import zlib

import pytest

from cases import batches, extents, kernel_inputs, shrinking, vllm_api
from cases.batches import Named
from cases.batches.drawn import drawn
from cases.cell import Cell
from cases.test_paged_kv_buffers import judge
from cases.test_virtual_batches import assert_split
from cases.verdicts import Batch, Overflow, words_of


def test_random_batches_fit_and_are_right(cell: Cell, auditor: extents.Auditor, pytestconfig: pytest.Config) -> None:
    """The split and what kernels are told, by the definition; what overruns is cut down like any other overflow."""
    seed = pytestconfig.getoption("--seed")
    load, overrun = batches.short_steps(cell.load), []
    by_v1_only = 0 if vllm_api.HAS_V2 else getattr(auditor.builder, "reorder_batch_threshold", None) or 1
    of_the_cell = zlib.crc32(f"{seed} {cell.id}".encode())
    for batch in drawn(load, cell.spec_k, cell.chunk, of_the_cell, by_v1_only=by_v1_only):
        if wrong := _wrong(auditor, batch, overrun):
            found = shrinking.smallest(
                Overflow("", 0, 0, "", batch, wrong), cell.chunk, lambda b: _as_found(auditor, b)
            )
            pytest.fail(f"{found.detail}; batch: {found.batch}; cut down from a batch of seed {seed}", pytrace=False)
    judge(auditor, overrun)


def _wrong(auditor: extents.Auditor, batch: Batch, overrun: list[Named]) -> str:
    """What is wrong with a batch, in words; where a buffer overran, the batch is kept for that instead."""
    named = Named("a random batch", batch)
    try:
        built = auditor.build(batch)
        if not built.overflows:
            return "; ".join(kernel_inputs.wrong(built, auditor.deployment))
        overrun.append(named)
        assert_split(auditor.deployment, named)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is wrong
        return words_of(error)
    return ""


def _as_found(auditor: extents.Auditor, batch: Batch) -> Overflow | None:
    """What `shrinking.smallest` follows: a smaller batch with which something is wrong as well."""
    wrong = _wrong(auditor, batch, [])
    return Overflow("", 0, 0, "", batch, wrong) if wrong else None
