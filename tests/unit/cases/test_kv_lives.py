"""Lives are ones that a deployment may see, and meet the borders they are made for."""

from itertools import product

import pytest

from cases import kv_lives

SHAPES = [
    kv_lives.shape(chunk, page, length, k)
    for chunk, page, length, k in product((16, 64, 1024, 8192), (16, 32, 128), (256, 36000), (0, 1, 3, 7))
    if chunk % page == 0  # vLLM takes no other
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_lives_are_possible(shape: kv_lives.Shape) -> None:
    makers = (kv_lives.at_borders, kv_lives.with_common_prefixes, kv_lives.crowded, kv_lives.at_random)
    for seed in range(3):
        for made in [*(make(shape, seed) for make in makers), [kv_lives.alone(shape, seed)]]:
            assert len({life.name for life in made}) == len(made)
            assert made[0].after == 0
            for before, life in enumerate(made):
                assert life.prompt >= 1, life.name
                assert life.outputs >= 1, life.name
                assert life.prompt + life.outputs <= shape.length, life.name
                # What two more windows sample before anybody hears that it has ended.
                assert len(life.text) >= life.prompt + life.outputs + 2 * shape.spec_k + 2, life.name
                assert life.after <= before, life.name
                assert all(0 <= right <= drafts <= shape.spec_k for drafts, right in life.windows)


def test_borders_are_met_with_all_numbers_of_right_drafts() -> None:
    """With k = 3, prompts end 0 to 4 tokens before the border at 64, and 0 to 3 drafts are right."""
    shape = kv_lives.shape(64, 16, 4096, 3)
    pairs = {
        (64 - life.prompt, life.windows[0][1])
        for seed in range(40)
        for life in kv_lives.at_borders(shape, seed)
        if life.name != "to-the-end"
    }
    assert pairs == set(product(range(5), range(4)))


def test_prefixes_reach_from_a_page_to_two_chunks() -> None:
    made = kv_lives.with_common_prefixes(kv_lives.shape(64, 16, 4096, 0), 0)
    first, lengths = made[0].text.tolist(), []
    for life in made[1:]:
        text = life.text.tolist()
        lengths.append(next(i for i, (a, b) in enumerate(zip(first, text, strict=True)) if a != b))
    wanted = [17, 65, 64, 81, 64, 48, 129, 128]
    assert all(found >= n for found, n in zip(lengths, wanted, strict=True))
    assert sum(found == n for found, n in zip(lengths, wanted, strict=True)) >= 6  # by chance a token more is the same
