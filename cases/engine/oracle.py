"""What the model itself says: transformers' Llama 4, without a KV cache, without pages, without anything of vLLM.

It reads the whole of a prompt with its answer at once (teacher forcing). Greedy decoding is then right if at each place
the answer's token is the most likely one: by induction the answer is the model's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import Llama4ForCausalLM

from cases.engine.prompts import Tokens

TIE = 5e-4
"""Two tokens whose log-probabilities are nearer than this are alike likely, and either may be the answer's.

Both sides compute in float32 (epsilon 1.2e-7) and add up in other orders. A token goes through four layers, each with
sums of 128 to 1,024 products in every map: rounding grows to about 1e-5 in a log-probability, and 1e-5 is what was
measured at most between vLLM's CPU backend and transformers. Fifty times that leaves room for other backends, and one
step in a thousand is a tie.
"""
GAP = TIE / 2
"""How far a log-probability that vLLM reports may be from the model's own."""


@dataclass(frozen=True)
class Answer:
    """What an engine answered: its tokens, the log-probability of each, and how far the next best token was behind."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    margins: tuple[float, ...]
    cached: int = 0
    """Tokens of the prompt that were not computed again."""


@dataclass(frozen=True)
class Difference:
    """The first token of an answer that is not the model's, or the first log-probability that is too far from it."""

    prompt: int
    step: int
    token: int
    expected: int
    behind: float
    """By how much the answer's token is less likely than the expected one (log-probability, nats)."""

    def __str__(self) -> str:
        place = f"prompt of {self.prompt} tokens, answer's token {self.step} (position {self.prompt + self.step})"
        if self.token == self.expected:
            return f"{place}: its log-probability is off by {self.behind:.2g}"
        return f"{place}: {self.token}, which is {self.behind:.2g} nats behind the model's {self.expected}"


def logprobs(model: Llama4ForCausalLM, tokens: Tokens) -> torch.Tensor:
    """Log-probabilities of the token after each of `tokens`, [len(tokens), vocabulary], float32."""
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([tokens]), use_cache=False).logits[0].log_softmax(-1)
    return found


def last_logprobs(model: Llama4ForCausalLM, prompts: list[Tokens]) -> torch.Tensor:
    """Of the token after each of several prompts of one length, [len(prompts), vocabulary], float32."""
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor(prompts), use_cache=False).logits[:, -1].log_softmax(-1)
    return found


def greedy(model: Llama4ForCausalLM, prompt: Tokens, tokens: int) -> Answer:
    """The model's own answer, a token at a time."""
    said, best = list(prompt), []
    for _ in range(tokens):
        best.append(logprobs(model, said)[-1].topk(2))
        said.append(int(best[-1].indices[0]))
    values = [one.values.tolist() for one in best]
    ahead = tuple(first - second for first, second in values)
    return Answer(tuple(prompt), tuple(said[len(prompt) :]), tuple(first for first, _ in values), ahead)


def difference(model: Llama4ForCausalLM, answer: Answer) -> Difference | None:
    """Where an answer leaves the model first; None where it is the model's own."""
    prompt = len(answer.prompt)
    said = logprobs(model, [*answer.prompt, *answer.tokens])[prompt - 1 : -1]
    for step, token in enumerate(answer.tokens):
        best = int(said[step].argmax())
        behind = float(said[step, best] - said[step, token])
        off = abs(float(said[step, token]) - answer.logprobs[step])
        if behind > TIE:
            return Difference(prompt, step, token, best, behind)
        if not off <= GAP:
            return Difference(prompt, step, token, token, off)
    return None


def gap(model: Llama4ForCausalLM, answer: Answer) -> float:
    """The largest distance between the log-probabilities of an answer's tokens and the model's."""
    prompt = len(answer.prompt)
    said = logprobs(model, [*answer.prompt, *answer.tokens])[prompt - 1 : -1]
    return max(abs(float(said[i, token]) - answer.logprobs[i]) for i, token in enumerate(answer.tokens))


def same(one: Answer, other: Answer) -> Difference | None:
    """Where two answers to one prompt part, both an engine's; None where they do not, or part at a tie.

    The first may be shorter than the other.
    """
    for step, (token, expected) in enumerate(zip(one.tokens, other.tokens, strict=False)):
        if token != expected:
            margin = other.margins[step]
            return Difference(len(one.prompt), step, token, expected, margin) if margin > TIE else None
    return None


def told(again: Sequence[Answer], before: Sequence[Answer], how: str) -> None:
    """Fails if an answer is another one than before."""
    found = [found for one, other in zip(again, before, strict=True) if (found := same(one, other))]
    assert not found, f"{how}, {len(found)} of {len(again)} answers are others: " + "; ".join(map(str, found))
