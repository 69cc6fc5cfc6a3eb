"""Draft tokens that a case chooses, in the place of those that vLLM's n-gram search finds."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from cases.engine.model import VOCABULARY
from cases.engine.oracle import Answer


@contextmanager
def scripted(drafter: Any, answers: Sequence[Answer], *, always: int | None = None) -> Iterator[None]:
    """Each window's drafts begin with so many right ones: none, then one more from window to window, modulo k + 1.

    Or `always` the same number. `answers` are those that will be given; after the right tokens come wrong ones.
    """
    texts = [(*answer.prompt, *answer.tokens) for answer in answers]
    right = itertools.count() if always is None else itertools.repeat(always)

    def drafted(text: tuple[int, ...]) -> list[int]:
        """The drafts after a text; none where it is no answer's beginning, as then something has gone wrong already."""
        whole = next((whole for whole in texts if whole[: len(text)] == text), ())
        following, kept = list(whole[len(text) : len(text) + drafter.k]), next(right) % (drafter.k + 1)
        return [token if i < kept else (token + 1) % VOCABULARY for i, token in enumerate(following)]

    def propose(_k: int, sampled: Any, lengths: Any, tokens: Any, *_: Any, **__: Any) -> list[list[int]]:
        return [drafted(tuple(tokens[i, : lengths[i]].tolist())) if new else [] for i, new in enumerate(sampled)]

    with mock.patch.object(drafter, "propose", propose):
        yield
