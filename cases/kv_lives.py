"""Lives of requests that strain the handing out of KV-cache blocks: at chunk borders, with prefixes in common, at random.

Lengths in tokens: `chunk`, `page`, `length` (max_model_len) and `spec_k` drafts in a verify window.
"""

from dataclasses import dataclass

import numpy as np

from cases.kv_shadow import Ints
from cases.kv_worker import Life


@dataclass(frozen=True)
class Shape:
    """What lives are made for. `most` bounds how many there are: a long chunk is many blocks to hash and to hand out."""

    chunk: int
    page: int
    length: int
    spec_k: int

    @property
    def most(self) -> int:
        return max(3, min(24, 1536 * self.page // self.chunk))


def at_borders(shape: Shape, seed: int) -> list[Life]:
    """Drafts are rejected before, at and after a chunk border: each distance from it with each number of right ones."""
    rng, k = np.random.default_rng(seed), shape.spec_k
    pairs = [(distance, right) for distance in range(k + 2) for right in range(k + 1)]
    lives = []
    for distance, right in _some(rng, pairs, shape.most):
        prompt = max(1, min(shape.chunk, shape.length - 2 * k - 3) - distance)
        outputs = min(distance + k + 3, shape.length - prompt)
        text = _text(rng, prompt + outputs + 2 * k + 2)
        lives.append(Life(f"border-{distance}+{right}", text, prompt, outputs, ((k, right), (k, k), (k, 0))))
    text = _text(rng, shape.length + 2 * k + 2)
    lives.append(Life("to-the-end", text, shape.length - k - 2, k + 2, ((k, k // 2),)))
    return lives


def with_common_prefixes(shape: Shape, seed: int) -> list[Life]:
    """A text is computed, and then others that begin like it, as far as a page, a chunk, and one more or less."""
    rng, k, c, page = np.random.default_rng(seed), shape.spec_k, shape.chunk, shape.page
    first = _text(rng, shape.length + 2 * k + 2)
    room = shape.length - k - 4
    borders = (page, c - page, c, c + page, 2 * c) if shape.most > 3 else (c, c + page)
    common = sorted({n for border in borders for n in (border, border + 1) if 0 < n <= room})
    longest = min(common[-1] + page + 1, room)
    lives = [Life("first", first, longest, k + 2, ((k, k // 2),))]
    for i, n in enumerate(common):
        text = np.concatenate([first[:n], _text(rng, shape.length + 2 * k + 2 - n)])
        # Two at a time, one of them with the first tokens of its own tail in the prompt.
        lives.append(Life(f"same-{n}", text, n + i % 2, k + 3, ((k, i % (k + 1)), (k, k)), after=1 + i // 2))
    return lives


def at_random(shape: Shape, seed: int) -> list[Life]:
    """Requests of a few families with common beginnings, lengths near borders, and drafts that fare by chance."""
    rng, k = np.random.default_rng(seed), shape.spec_k
    families = [_text(rng, shape.length + 2 * k + 2) for _ in range(2)]
    room = shape.length - 3 * k - 8
    lives = []
    for i in range(max(3, shape.most // 3)):
        border = int(rng.choice([shape.page, shape.chunk, shape.chunk + shape.page, 2 * shape.chunk]))
        prompt = int(np.clip(border + rng.integers(-k - 2, k + 3), 1, room))
        outputs = int(rng.integers(1, 3 * k + 6))
        text = families[rng.integers(2)].copy()
        common = int(rng.integers(0, prompt + 1))
        text[common:] = _text(rng, len(text) - common)
        drafts = rng.integers(0, k + 1, 5)
        windows = tuple((int(n), int(rng.integers(0, n + 1))) for n in drafts)
        lives.append(Life(f"chance-{i}", text, prompt, outputs, windows, after=max(0, i - 3)))
    return lives


def _text(rng: np.random.Generator, count: int) -> Ints:
    return rng.integers(0, 250, count)


def _some(rng: np.random.Generator, pairs: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    chosen = sorted(rng.permutation(len(pairs))[:most])
    return [pairs[i] for i in chosen]
