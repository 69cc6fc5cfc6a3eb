"""The output of a backend's forward against chunked local attention by its definition, per query token and head."""

import pytest

from cases import batches, cut_down, extents
from cases.attention_inputs import SEED
from cases.batches import Named
from cases.cell import Cell
from cases.forward.step import Forward
from cases.needs import Need
from cases.verdicts import Overflow, Overflowed
from cases.vllm_api import forward

KEYS = 400_000
"""Keys that the query tokens of a batch see together, at most."""
INTERPRETED = {"within capacity": 6_000, "wherever tokens stand": 17_000, "worst": 9_000}
"""What an interpreter is given to do for the batches of one case, in programs of half a millisecond on an idle core.

The middle one has room for a token at the end of the largest chunk.
"""


@pytest.fixture
def computing(request: pytest.FixtureRequest, auditor: extents.Auditor) -> Forward:
    """The cell's chunked layer, its cache and what was computed; made once per cell."""
    if not forward.KNOWN:
        pytest.skip("how this release lays out a KV cache is not known here")
    if request.config.stash.get(_COMPUTING, (None, None))[0] is not auditor:
        request.config.stash[_COMPUTING] = (auditor, Forward(auditor))
    return request.config.stash[_COMPUTING][1]


_COMPUTING = pytest.StashKey[tuple[extents.Auditor, Forward]]()


@pytest.mark.kind("outputs without a split")
def test_outputs_are_right_within_capacity(cell: Cell, computing: Forward) -> None:
    """Batches of a virtual batch per request, and as many as max_num_seqs: no buffer is too small for these."""
    named = within_capacity(cell)
    _assert_right(computing, named)
    if overflows := [o for one in named for o in computing.show(one).overflows]:
        raise Overflowed(overflows[:1])


@pytest.mark.kind("outputs wherever tokens stand")
def test_outputs_are_right_wherever_tokens_stand(cell: Cell, computing: Forward) -> None:
    """Few query tokens at every kind of place of a chunk, and as few as overrun what has max_num_seqs rows."""
    _assert_right(computing, wherever_tokens_stand(cell))


@pytest.mark.cell(lambda cell: bool(worst(cell)))  # an interpreter has no time for some
@pytest.mark.kind("outputs of the worst batches")
def test_outputs_are_right_for_the_worst_batches(cell: Cell, computing: Forward) -> None:
    """The batches that strain buffers most, of a load that is cut down."""
    _assert_right(computing, worst(cell))


@pytest.mark.kind("reads of kernels")
def test_no_kernel_reads_past_an_end(cell: Cell, computing: Forward) -> None:
    """All batches: none overruns a buffer while it is built, and no kernel is handed less than it reads."""
    first: dict[tuple[str, str], Overflow] = {}
    for one in [*wherever_tokens_stand(cell), *worst(cell)]:
        for overflow in computing.show(one).overflows:
            first.setdefault((overflow.buffer, overflow.how), overflow)
    if first:
        raise Overflowed([o if o.how == "short" else cut_down.smallest(computing.auditor, o) for o in first.values()])


def within_capacity(cell: Cell) -> list[Named]:
    """No more virtual batches than requests, or than max_num_seqs."""
    load, of_the_cell = batches.cut_down(cell.load, cell.pattern, 4), (cell.spec_k, cell.pattern)
    named = batches.within_capacity(load, *of_the_cell) + batches.splits_that_fit(load, *of_the_cell)
    return _affordable(named, cell, "within capacity")


def wherever_tokens_stand(cell: Cell) -> list[Named]:
    """Few query tokens, and the fewest that give a virtual batch more than max_num_seqs."""
    of_the_cell = (cell.load, cell.spec_k, cell.pattern)
    named = [*batches.few_tokens(*of_the_cell), *batches.one_row_more(*of_the_cell)]
    return _affordable(named, cell, "wherever tokens stand")


def worst(cell: Cell) -> list[Named]:
    """Of a load that is cut down to four requests, a step of two chunks, and sequences of four."""
    named = batches.worst(batches.cut_down(cell.load, cell.pattern, 4), cell.spec_k, cell.pattern)
    return _affordable(named, cell, "worst")


def _affordable(named: list[Named], cell: Cell, kind: str) -> list[Named]:
    """Those that there is time for: all with not too many keys, or, interpreted, the quickest ones."""
    if cell.evidence != "interpreted":
        return [one for one in named if batches.keys_seen(one, cell.pattern) <= KEYS]
    kept, left = [], INTERPRETED[kind]
    for one in sorted(named, key=lambda one: _programs(one, cell)):
        left -= _programs(one, cell)
        if left < 0:
            break
        kept.append(one)
    return kept


def _programs(named: Named, cell: Cell) -> int:
    """What an interpreter has to do: a write for each key, and about eight times that for each tile of each KV head.

    A tile is 4 query tokens by 16 keys, the smallest that vLLM's unified attention takes for groups of four.
    """
    rows = Need.of(named.batch, cell.pattern, cell.load.block_size).rows
    tiles = (-(-rows.query_lens // 4)) @ (-(-rows.key_lens // 16)) * cell.load.num_kv_heads
    return int(rows.key_lens.sum() + 8 * tiles)


def _assert_right(computing: Forward, named: list[Named]) -> None:
    """Every batch that can be built is computed, and right; some batch is, unless all of them overrun a buffer."""
    assert named, "no batch was chosen"
    shown = [computing.show(one) for one in named]
    wrong = [f"{one.name}: {s.wrong}; batch: {one.batch}" for one, s in zip(named, shown, strict=True) if s.wrong]
    assert not wrong, f"{wrong[0]}; seed {SEED}" + (f"; and {len(wrong) - 1} more batches" if wrong[1:] else "")
    assert all(s.overflows for s in shown) or any(s.computed for s in shown), "no batch could be computed"
