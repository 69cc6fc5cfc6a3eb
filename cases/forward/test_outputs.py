"""The output of a backend's forward against chunked local attention by its definition, per query token and head."""

from functools import partial

import pytest

from cases import batches, extents, shrinking
from cases.batches import Named
from cases.cell import Cell
from cases.forward.step import Forward, affordable, all_of
from cases.verdicts import Batch, Overflow, Overflowed
from cases.vllm_api import forward

KEYS = {"interpreted": 20_000}
"""Keys that the query tokens of a batch see together, at most; an interpreter takes its time for each."""


@pytest.fixture
def computing(auditor: extents.Auditor) -> Forward:
    """The cell's chunked layer and its cache."""
    if not forward.KNOWN:
        pytest.skip("how this release lays out a KV cache is not known here")
    return Forward(auditor)


def test_outputs_are_right_within_capacity(cell: Cell, computing: Forward) -> None:
    """Batches of a virtual batch per request, and as many as max_num_seqs: no buffer is too small for these."""
    load = batches.cut_down(cell.load, cell.chunk, 4)
    named = batches.within_capacity(load, cell.spec_k, cell.chunk) + batches.splits_that_fit(
        load, cell.spec_k, cell.chunk
    )
    if overflows := all_of(computing, _affordable(named, cell)):
        raise Overflowed(list(overflows.values()))


def test_outputs_are_right_wherever_tokens_stand(cell: Cell, computing: Forward) -> None:
    """Few query tokens at every kind of place of a chunk, and as few as overrun what has max_num_seqs rows."""
    named = [*batches.few_tokens(cell.load, cell.spec_k, cell.chunk)]
    named += batches.one_row_more(cell.load, cell.spec_k, cell.chunk)
    _raise_smallest(all_of(computing, _affordable(named, cell)), computing)


def test_outputs_are_right_for_the_worst_batches(cell: Cell, computing: Forward) -> None:
    """The batches that strain buffers most, of a load that is cut down: a step of two chunks, sequences of four."""
    load = batches.cut_down(cell.load, cell.chunk, 4)
    named = batches.worst(load, cell.spec_k, cell.chunk)
    _raise_smallest(all_of(computing, _affordable(named, cell)), computing)


def _affordable(named: list[Named], cell: Cell) -> list[Named]:
    return affordable(named, cell.chunk, KEYS.get(cell.evidence, 400_000))


def _raise_smallest(found: dict[tuple[str, str], Overflow], computing: Forward) -> None:
    """Overflowed with each overflow; those seen while a batch was built are cut down to its smallest."""
    if found:
        raise Overflowed([o if o.how == "short" else _smallest(o, computing.auditor) for o in found.values()])


def _smallest(overflow: Overflow, auditor: extents.Auditor) -> Overflow:
    same = (overflow.buffer, overflow.how)
    if same not in auditor.smallest:
        auditor.smallest[same] = shrinking.smallest(overflow, auditor.cell.chunk, partial(_like, auditor, overflow))
    return auditor.smallest[same]


def _like(auditor: extents.Auditor, overflow: Overflow, batch: Batch) -> Overflow | None:
    """The overflow of the same buffer and kind for another batch, if that may be formed."""
    if not batches.may_be_formed(batch, auditor.cell.load):
        return None
    shown = auditor.build(batch).overflows
    return next((o for o in shown if (o.buffer, o.how) == (overflow.buffer, overflow.how)), None)
