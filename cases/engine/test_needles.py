"""A small quality score: needles that a right engine finds, and one with a wrong mask mostly does not."""

from typing import Any

import pytest

from cases.engine.needles import HAYSTACKS, NEEDLES, needles, score
from cases.engine.serving import Served, compiled


@pytest.mark.cell.with_args(compiled)
@pytest.mark.kind("needles")
def test_needles_are_found(engine: Served, record: dict[str, Any]) -> None:
    """Every needle is answered as the model does. A score and not only a verdict: it says how bad a wrong mask is."""
    found = needles(engine.oracle, engine.sizes)
    assert len(found) == HAYSTACKS * NEEDLES, f"only {len(found)} needles have answers of their own"
    answers = engine.answers_alone([needle.prompt for needle in found], tokens=1)
    record["needle_score"] = score(found, [answer.tokens[0] for answer in answers])
    assert record["needle_score"] == 1.0, f"score {record['needle_score']:.2f}, the model's own is 1"
