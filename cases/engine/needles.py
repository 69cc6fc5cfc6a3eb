"""A small recall task in the spirit of RULER: the answer hangs on one token, far back in the chunk that is asked from.

The model has random weights and was taught nothing, so what it recalls is what it says: a needle is a token whose
exchange changes the model's next token. A right engine gives the model's answer for each needle, and its score is 1;
one whose layers see too much or too little answers from another context.
"""

from dataclasses import dataclass

import torch
from transformers import Llama4ForCausalLM

from cases.engine.oracle import last_logprobs
from cases.engine.prompts import Sizes, text

NEEDLES = 2
"""Tokens that take turns in one haystack."""
HAYSTACKS = 6
CLEAR = 0.05
"""Nats by which the model's answer is ahead of its second choice: no rounding makes another one of it."""


@dataclass(frozen=True)
class Needle:
    """A prompt, and the token that the model answers with."""

    prompt: tuple[int, ...]
    answer: int


def needles(model: Llama4ForCausalLM, sizes: Sizes) -> list[Needle]:
    """Haystacks in which each of the needles has an answer of its own.

    A haystack is a whole chunk, and most of a second one: the needle is the third token of the second chunk, the
    question its last. Of those drawn every other one will do.
    """
    drawn, found = torch.Generator().manual_seed(2 + sizes.chunk), []
    place, length = sizes.chunk + 2, 2 * sizes.chunk - 4
    for _ in range(8 * HAYSTACKS):
        haystack = text(length, drawn)
        prompts = [[*haystack[:place], needle, *haystack[place + 1 :]] for needle in text(NEEDLES, drawn)]
        best = last_logprobs(model, prompts).topk(2)
        answers, ahead = best.indices[:, 0].tolist(), best.values[:, 0] - best.values[:, 1]
        if len(set(answers)) == NEEDLES and bool((ahead > CLEAR).all()):
            found += [Needle(tuple(prompt), answer) for prompt, answer in zip(prompts, answers, strict=True)]
        if len(found) == HAYSTACKS * NEEDLES:
            break
    return found


def score(found: list[Needle], answers: list[int]) -> float:
    """The share of needles that were answered as the model does."""
    return sum(needle.answer == answer for needle, answer in zip(found, answers, strict=True)) / len(found)
