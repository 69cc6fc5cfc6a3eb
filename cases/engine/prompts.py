"""Prompts that end before, on and after the borders of chunks and pages; lengths are in tokens."""

from dataclasses import dataclass

import torch

from cases.engine.model import VOCABULARY

Tokens = list[int]


@dataclass(frozen=True)
class Sizes:
    """Tokens of a chunk and of a page, drafts of a verify window, and what a prompt and its answer may be together."""

    chunk: int
    page: int
    spec_k: int
    longest: int
    few: bool = False
    """Whether each token takes so long that there are only a few prompts."""


def lengths(sizes: Sizes) -> tuple[int, ...]:
    """A short prompt, and around each border: the last tokens of a chunk, the whole of it, and one more.

    The second to last ends where its answer passes a border after a window's length, the last is of three chunks.
    """
    c, page = sizes.chunk, sizes.page
    if sizes.few:
        return (c - 1, c + page)
    found = (page // 2, c - 1, c, c + 1, c + page, 2 * c - 2 - sizes.spec_k, 2 * c + page + 3)
    return tuple(length for length in dict.fromkeys(found) if length < sizes.longest)


def at_borders(sizes: Sizes) -> list[Tokens]:
    """One prompt of each length."""
    drawn = torch.Generator().manual_seed(sizes.chunk)
    return [text(length, drawn) for length in lengths(sizes)]


def with_a_common_prefix(sizes: Sizes) -> list[Tokens]:
    """Prompts that begin alike, for as long as a page, a chunk, and a chunk and a page, and then differ."""
    drawn = torch.Generator().manual_seed(1 + sizes.chunk)
    common = text(sizes.chunk + sizes.page, drawn)
    shared = (sizes.page, sizes.chunk, sizes.chunk + sizes.page)
    return [common[:length] + text(5, drawn) for length in shared]


def before_a_border(sizes: Sizes) -> list[Tokens]:
    """Prompts whose first verify window begins in one chunk and ends in the next, cut after each of its tokens."""
    drawn = torch.Generator().manual_seed(4 + sizes.chunk)
    return [text(sizes.chunk - before, drawn) for before in range(1, sizes.spec_k + 1)]


def that_grow(sizes: Sizes) -> list[Tokens]:
    """Two prompts that end just before a page of a chunk is full, and not its last: their answers need more blocks.

    Beyond the border of a chunk blocks become free as well, and no request would have to go.
    """
    drawn = torch.Generator().manual_seed(3 + sizes.chunk)
    return [text(sizes.chunk - sizes.page - 2 - sizes.spec_k, drawn) for _ in range(2)]


def text(length: int, drawn: torch.Generator) -> Tokens:
    """Tokens drawn at random, all alike likely."""
    return torch.randint(VOCABULARY, (length,), generator=drawn).tolist()
