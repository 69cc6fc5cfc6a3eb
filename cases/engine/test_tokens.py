"""The tokens of a whole engine are those of the model."""

from cases.engine.oracle import Answer, difference
from cases.engine.serving import Served


def test_tokens_are_those_of_the_model(engine: Served, answers: list[Answer]) -> None:
    """Each token is the most likely one by transformers' own Llama 4, and its log-probability is the model's.

    As both settings of the hybrid manager, every k and every backend are held to the same model, they are held to each
    other: where two cells pass, their answers are the same.
    """
    found = [found for answer in answers if (found := difference(engine.oracle, answer))]
    assert not found, f"{len(found)} of {len(answers)} answers are not the model's: " + "; ".join(map(str, found))
