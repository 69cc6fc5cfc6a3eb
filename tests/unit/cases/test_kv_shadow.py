"""The shadow of the KV cache, and the longest prefix hit, against figures worked out by hand and the definition."""

from itertools import product

import numpy as np
import pytest

from cases.kv_shadow import Group, Shadow, longest_hit, prints
from cases.patterns import Chunked, Full

CHUNKED, WHOLE = Group(Chunked(8), block_size=4), Group(Full(), block_size=4)


@pytest.mark.parametrize(
    ("chunked", "whole", "tokens", "hit"),
    [
        # Chunks are tokens 0-7, 8-15, 16-23; pages hold 4. A prompt of 16 may hit 12 (its last token is computed
        # again): token 12 needs chunked page 2 (tokens 8-11) and pages 0-2 of the layers that see all.
        ([0, 0, 1, 0, 0], [1, 1, 1, 1, 1], 16, 12),
        # Without page 2, token 8 begins a chunk and needs no chunked page at all.
        ([0, 0, 0, 0, 0], [1, 1, 1, 1, 1], 16, 8),
        # Token 16 begins a chunk, and is the last one here.
        ([0, 0, 0, 0, 0], [1, 1, 1, 1, 1], 17, 16),
        # A page more than there is to hit.
        ([1, 1, 1, 1, 0], [1, 1, 1, 1, 0], 20, 16),
        # The other layers end the hit at token 4, which needs chunked page 0.
        ([1, 1, 1, 1, 1], [1, 0, 1, 1, 1], 17, 4),
        ([0, 1, 1, 1, 1], [1, 0, 1, 1, 1], 17, 0),
        # Four tokens: all of a page, and yet one must be computed.
        ([1, 1, 1, 1, 1], [1, 1, 1, 1, 1], 4, 0),
        ([1, 1, 1, 1, 1], [1, 1, 1, 1, 1], 5, 4),
    ],
)
def test_longest_hit_by_hand(chunked: list[int], whole: list[int], tokens: int, hit: int) -> None:
    cached = [np.array(chunked, bool), np.array(whole, bool)]
    assert longest_hit([CHUNKED, WHOLE], cached, tokens) == hit


def test_longest_hit_is_the_definition() -> None:
    """Token h attends to key j <= h of its chunk; those before h must be in pages that are there."""
    for bits in product((False, True), repeat=6):
        chunked, whole = bits[:3], (True, *bits[4:], bits[3])
        for tokens in range(1, 17):
            fine = [
                h
                for h in range(0, tokens, 4)
                if all(whole[j // 4] if j // 4 < 3 else False for j in range(h))
                and all(chunked[j // 4] if j // 4 < 3 else False for j in range(h) if j // 8 == h // 8)
            ]
            found = longest_hit([CHUNKED, WHOLE], [np.array(chunked), np.array(whole[:3])], tokens)
            assert found == max(fine), (bits, tokens)


def test_groups_need_the_keys_of_the_definition() -> None:
    # Two query tokens at 7 and 8: the first still needs its whole chunk.
    assert CHUNKED.first(7, 2) == 0
    assert CHUNKED.first(8, 2) == 8
    assert CHUNKED.pages(8, 10) == slice(2, 3)
    assert WHOLE.first(9, 1) == 0
    assert WHOLE.pages(0, 9) == slice(0, 3)


def test_prints_tell_texts_apart_from_where_they_differ() -> None:
    one, other = np.arange(100), np.arange(100)
    other[40] = 7
    same = prints(one) == prints(other)
    assert same[:40].all()
    assert not same[40:].any()
    assert len(set(prints(np.zeros(1000, np.int64)).tolist())) == 1000  # the same token, but not the same place


def test_a_slot_holds_what_was_written_last_and_for_one_group_only() -> None:
    shadow, text = Shadow([CHUNKED, WHOLE], blocks=4), prints(np.arange(10))
    pages = np.array([3, 1, 2])
    shadow.write(0, pages, 0, text)
    assert (shadow.read(0, pages[1:], 1, 5) == text[5:]).all()
    assert shadow.at(0, np.array([3 * 4 + 1]))[0] == text[1]
    assert not (shadow.read(1, pages, 0, 10) == text).any()
    shadow.write(1, pages[:1], 2, text[2:4])
    assert (shadow.read(0, pages, 0, 10) == text).tolist() == [True, True, False, False] + [True] * 6
