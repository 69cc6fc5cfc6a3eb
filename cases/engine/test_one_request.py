"""One request at a time: its tokens are the model's, however its prompt is computed and whatever lies in freed blocks.

The relations need no oracle: vLLM's own answers are compared with each other.
"""

from typing import Any

import pytest

from cases.engine import drafts, steps
from cases.engine.oracle import Answer, difference, gap, told
from cases.engine.prompts import with_a_common_prefix
from cases.engine.serving import SHORT_ANSWER, Served, compiled

POISON = 30.0
"""Written into freed blocks: as a key or a value far from any of the model's, and no NaN, which a mask cannot undo."""


@pytest.mark.kind("tokens of the model")
def test_tokens_are_those_of_the_model(engine: Served, alone: list[Answer], record: dict[str, Any]) -> None:
    """Each token is the most likely one by transformers' own Llama 4, and its log-probability is the model's.

    As both settings of the hybrid manager, every k and every backend are held to the same model, they are held to each
    other: where two cells pass, their answers are the same.
    """
    record["logprob_gap"] = max(gap(engine.oracle, answer) for answer in alone)
    found = [found for answer in alone if (found := difference(engine.oracle, answer))]
    assert not found, f"{len(found)} of {len(alone)} answers are not the model's: " + "; ".join(map(str, found))


@pytest.mark.cell.with_args(compiled)
@pytest.mark.kind("relations of one request")
def test_answers_do_not_depend_on_how_a_prompt_is_cut(engine: Served, alone: list[Answer]) -> None:
    """Prompts computed in pieces that end amid pages, and one token before and after each border of a chunk."""
    for tokens in (engine.sizes.page // 2 + 3, engine.sizes.chunk - 1, engine.sizes.chunk + 1):
        longer = [answer for answer in alone if len(answer.prompt) > tokens]
        with steps.prompts_cut(engine.scheduler, tokens):
            engine.steps.clear()
            again = engine.answers_alone([answer.prompt for answer in longer], SHORT_ANSWER)
        assert engine.steps.cut_prompts > 0, f"no prompt was cut after {tokens} tokens: nothing was judged"
        told(again, longer, f"prompts computed {tokens} tokens at a time")


@pytest.mark.cell.with_args(compiled)
@pytest.mark.kind("relations of one request")
def test_answers_do_not_depend_on_prefix_hits(engine: Served) -> None:
    """Prompts that begin alike, computed in full, and then with what is found of them in the prefix cache."""
    prompts = with_a_common_prefix(engine.sizes)
    in_full = engine.answers_alone(prompts)
    for _ in range(2):
        again = engine.answers_alone(prompts, SHORT_ANSWER, from_cache=True)
        told(again, in_full, "with prefix hits")
    assert any(answer.cached for answer in again), "no prompt was found in the prefix cache: nothing was judged"


@pytest.mark.cell.with_args(compiled)
@pytest.mark.kind("relations of one request")
def test_answers_do_not_come_from_freed_blocks(engine: Served, alone: list[Answer]) -> None:
    """What a manager frees too soon, or a kernel reads beyond its rows, is not what was there before."""
    with steps.freed_blocks_overwritten(engine.scheduler, engine.kv_caches(), POISON) as freed:
        again = engine.answers_alone([answer.prompt for answer in alone])
    engine.llm.reset_prefix_cache()
    assert freed, "no block was freed: nothing was judged"
    told(again, alone, "freed blocks overwritten")


@pytest.mark.cell(compiled, spec_k=lambda k: k > 0, draft=["ngram"])
@pytest.mark.kind("relations of one request")
def test_answers_do_not_depend_on_what_is_drafted(engine: Served, alone: list[Answer]) -> None:
    """Windows in which none, some and all drafts are right, in turn; the n-gram search itself finds what it finds."""
    with drafts.scripted(engine.runner.drafter, alone):
        engine.steps.clear()
        again = engine.answers_alone([answer.prompt for answer in alone])
    assert engine.steps.drafts > 0, "no draft was verified: nothing was judged"
    told(again, alone, "other drafts")
