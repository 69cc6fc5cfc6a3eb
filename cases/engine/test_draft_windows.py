"""Verify windows that the border of a chunk cuts, at each place that it may."""

import pytest

from cases.engine import drafts
from cases.engine.oracle import difference, greedy
from cases.engine.prompts import before_a_border
from cases.engine.serving import Served, compiled

pytestmark = pytest.mark.cell(compiled, spec_k=lambda k: k > 0, draft=["ngram"])


@pytest.mark.kind("draft windows")
def test_windows_cut_by_a_border_are_verified_right(engine: Served) -> None:
    """All drafts are the model's own tokens, so that each window is as long as it may be; the first one is cut.

    Prompts lie in their first chunk: what is short here is short of rows for one request's window.
    """
    right = [greedy(engine.oracle, prompt, engine.cell.spec_k + 2) for prompt in before_a_border(engine.sizes)]
    with drafts.scripted(engine.runner.drafter, right, always=engine.cell.spec_k):
        engine.steps.clear()
        answers = engine.answers_alone([answer.prompt for answer in right], engine.cell.spec_k + 2)
    assert engine.steps.drafts == len(right) * engine.cell.spec_k, "a window had not all of its drafts"
    found = [found for answer in answers if (found := difference(engine.oracle, answer))]
    assert not found, f"{len(found)} of {len(answers)} answers are not the model's: " + "; ".join(map(str, found))
