"""Batches that nobody thought of: drawn from a seed, the same again for the same seed and cell."""

import zlib

import pytest

from cases import batches, extents, kernel_inputs, shrinking, vllm_api
from cases.batches import Named
from cases.batches.drawn import drawn
from cases.causes import cause_of
from cases.cell import Cell
from cases.test_paged_kv_buffers import judge
from cases.test_virtual_batches import assert_split
from cases.verdicts import Batch, Overflow, Wrong, words_of


@pytest.mark.kind("random batches")
def test_random_batches_fit_and_are_right(cell: Cell, auditor: extents.Auditor, pytestconfig: pytest.Config) -> None:
    """The split and what kernels are told, by the definition; what overruns is cut down like any other overflow."""
    seed = pytestconfig.getoption("--seed")
    load, overrun = batches.short_steps(cell.load), []
    by_v1_only = 0 if vllm_api.HAS_V2 else getattr(auditor.builder, "reorder_batch_threshold", None) or 1
    of_the_cell = zlib.crc32(f"{seed} {cell.id}".encode())
    for batch in drawn(load, cell.spec_k, cell.pattern, of_the_cell, by_v1_only=by_v1_only):
        if wrong := _wrong(auditor, batch, overrun):
            found = shrinking.smallest(wrong, auditor.border, lambda b: _wrong(auditor, b, []))
            raise Wrong(f"{found.detail}; batch: {found.batch}; cut down from a batch of seed {seed}", found.cause)
    judge(auditor, overrun)


def _wrong(auditor: extents.Auditor, batch: Batch, overrun: list[Named]) -> Overflow | None:
    """What is wrong with a batch, as `shrinking.smallest` follows it: an overflow of no buffer, with words.

    Where a buffer overran, the batch is kept for that instead.
    """
    named = Named("a random batch", batch)
    words, cause = "", None
    try:
        built = auditor.build(batch)
        if built.overflows:
            overrun.append(named)
            assert_split(auditor.deployment, named)
        else:
            words = "; ".join(kernel_inputs.wrong(built, auditor.deployment))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is wrong
        words, cause = words_of(error), cause_of(error)
    return Overflow("", 0, 0, "", batch, words, cause) if words else None
