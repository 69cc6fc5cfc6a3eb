"""Lives of requests that strain the handing out of KV-cache blocks: at chunk borders, with prefixes in common, crowded.

Lengths are in tokens.
"""

from dataclasses import dataclass

import numpy as np

from cases.kv_shadow import Ints
from cases.kv_worker import Life


@dataclass(frozen=True)
class Shape:
    """What lives are made for: tokens of a chunk, of a page and of the longest sequence, drafts in a verify window."""

    chunk: int
    page: int
    length: int
    spec_k: int

    @property
    def most(self) -> int:
        """How many lives: a long chunk is many blocks to hash and to hand out."""
        return max(3, min(7, 512 * self.page // self.chunk))


def shape(chunk: int, page: int, max_model_len: int, spec_k: int) -> Shape:
    """Sequences of two chunks and a bit; of one where it is long."""
    chunks = 2 if chunk <= 64 * page else 1
    return Shape(chunk, page, min(max_model_len, chunks * chunk + 5 * page), spec_k)


def at_borders(shape: Shape, seed: int) -> list[Life]:
    """Drafts are rejected before, at and after a chunk border: distances from it with numbers of right drafts.

    Which of the pairs are tried is the seed's choice, but for the one whose drafts would reach the border if any were
    right. The last life ends at the longest sequence.
    """
    rng, k = np.random.default_rng(seed), shape.spec_k
    pairs = [(distance, right) for distance in range(k + 2) for right in range(k + 1)]
    chosen = {pairs[i] for i in rng.permutation(len(pairs))[: shape.most - 1]} | {(k + 1, 0)}
    lives = []
    for distance, right in sorted(chosen):
        prompt = max(1, min(shape.chunk, shape.length - 2 * k - 3) - distance)
        outputs = min(distance + k + 3, shape.length - prompt)
        windows = ((k, right), (k, k), (k, 0))
        lives.append(Life(f"border-{distance}+{right}", _text(rng, shape), prompt, outputs, windows))
    lives.append(Life("to-the-end", _text(rng, shape), shape.length - k - 2, k + 2, ((k, k // 2),)))
    return lives


def alone(shape: Shape, seed: int) -> Life:
    """One request as long as may be."""
    k = shape.spec_k
    return Life("alone", _text(np.random.default_rng(seed), shape), shape.length - 2 * k - 2, k + 1, ((k, k // 2),))


def with_common_prefixes(shape: Shape, seed: int) -> list[Life]:
    """A text is computed, then others that begin like it, as far as a page, a chunk, and one token more."""
    rng, k, c, page = np.random.default_rng(seed), shape.spec_k, shape.chunk, shape.page
    text, room = _text(rng, shape), shape.length - k - 4
    # Tokens in common, and tokens of the prompt. One more than whole pages: all but the last token is a hit.
    pairs = [(page + 1, page + 1), (c + 1, c + 1), (c, c + page), (c + page + 1, c + page + 1)]
    if shape.most > 3:
        pairs += [(c, c), (c - page, c + 2), (2 * c + 1, 2 * c + 1), (2 * c, 2 * c + 3)]
    pairs = [pair for pair in dict.fromkeys(pairs) if pair[0] > 0 and pair[1] <= room]
    lives = [Life("first", text, max((n for pair in pairs for n in pair), default=room), k + 2, ((k, k // 2),))]
    for i, (common, prompt) in enumerate(pairs):
        own = np.concatenate([text[:common], _text(rng, shape)[common:]])
        lives.append(
            Life(f"same-{common}-of-{prompt}", own, prompt, k + 3, ((k, i % (k + 1)), (k, k)), after=1 + i // 2)
        )
    return lives


def crowded(shape: Shape, seed: int) -> list[Life]:
    """Requests that begin side by side a page before a border, where each soon wants a block and few are left."""
    rng, k = np.random.default_rng(seed), shape.spec_k
    prompt = min(shape.chunk, shape.length - 2 * shape.page) - shape.page - 1
    outputs = min(shape.page + 2 * k + 4, 6 * k + 6)
    return [
        Life(f"crowded-{i}", _text(rng, shape), max(1, prompt - i), outputs, ((k, i % (k + 1)), (k, k)))
        for i in range(min(4, shape.most - 1))
    ]


def at_random(shape: Shape, seed: int) -> list[Life]:
    """Requests of two families with common beginnings, lengths near borders, and drafts that fare by chance."""
    rng, k = np.random.default_rng(seed), shape.spec_k
    families = [_text(rng, shape) for _ in range(2)]
    lives = []
    for i in range(max(3, shape.most // 2)):
        border = int(rng.choice([shape.page, shape.chunk, shape.chunk + shape.page, 2 * shape.chunk]))
        prompt = int(np.clip(border + rng.integers(-k - 2, k + 3), 1, shape.length - 3 * k - 8))
        common = int(rng.integers(0, prompt + 1))
        text = np.concatenate([families[rng.integers(2)][:common], _text(rng, shape)[common:]])
        windows = tuple((int(n), int(rng.integers(0, n + 1))) for n in rng.integers(0, k + 1, 5))
        lives.append(Life(f"chance-{i}", text, prompt, int(rng.integers(1, 3 * k + 6)), windows, after=max(0, i - 3)))
    return lives


def blocks(lives: list[Life], shape: Shape, groups: int, requests: int) -> int:
    """A pool in which each life can reach its end, and the prompts of `requests` of them fit with no block to spare."""
    longest = max(life.prompt + life.outputs for life in lives) + 2 * shape.spec_k + 2
    prompt = max(life.prompt for life in lives)
    return 1 + groups * max(-(-longest // shape.page), requests * -(-prompt // shape.page))


def _text(rng: np.random.Generator, shape: Shape) -> Ints:
    """As long as a life may get, and two windows more."""
    return rng.integers(0, 250, shape.length + 2 * shape.spec_k + 2)
