"""Several requests at once: an answer is its own, whoever is in the batch, in which order, and in how small a cache."""

import pytest

from cases.engine import steps
from cases.engine.oracle import Answer, told
from cases.engine.prompts import that_grow
from cases.engine.serving import Served, compiled

pytestmark = pytest.mark.cell(lambda cell: cell.load.max_num_seqs > 1)


@pytest.mark.kind("relations of several requests")
def test_answers_do_not_depend_on_batch_mates_or_order(engine: Served, alone: list[Answer]) -> None:
    """All prompts at once, and once more from the last to the first: as if each were alone."""
    told(engine.answers([answer.prompt for answer in alone]), alone, "all at once")
    backwards = alone[::-1]
    told(engine.answers([answer.prompt for answer in backwards]), backwards, "all at once, from the last to the first")


@pytest.mark.cell.with_args(compiled)
@pytest.mark.kind("relations of several requests")
def test_answers_survive_preemption(engine: Served) -> None:
    """In a cache with one block less than two requests need at most, one is preempted and computed anew."""
    prompts = that_grow(engine.sizes)
    before = engine.answers_alone(prompts)
    engine.steps.clear()
    engine.answers(prompts)
    with steps.free_blocks_left(engine.scheduler, engine.steps.most_blocks - 1):
        again = engine.answers(prompts)
    assert engine.steps.preemptions > 0, "no request was preempted: nothing was judged"
    told(again, before, "with a preemption")
