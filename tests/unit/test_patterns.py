"""Patterns hold exactly the cells of a set, and there are as few of them as a search through all boxes finds."""

import random
from itertools import chain, combinations, product

import pytest

from runner.patterns import Grid

ODD_SIZES = [(3, 2), (2, 2, 2, 2), (4, 3, 2), (5, 3), (3, 3, 3), (5, 7, 2, 6), (26, 5, 7), (1, 4, 1, 3), (2, 9, 3, 3)]


def fewest(red, others, sizes):
    return Grid([*red, *others], sizes).split(red).fewest()


def table(seed):
    """Cells that are red, cells that are not, and cells that do not exist, in shares that differ from table to table.

    Half of the tables are made of boxes, as faults are, and half of them are noise.
    """
    chance = random.Random(seed)
    sizes = chance.choice(ODD_SIZES)
    every = [cell for cell in product(*map(range, sizes)) if chance.random() < chance.choice((0.6, 1))]
    if seed % 2:
        causes = [[{v for v in range(size) if chance.random() < 0.6} for size in sizes] for _ in range(3)]
        red = [cell for cell in every if any(all(v in c for v, c in zip(cell, box, strict=True)) for box in causes)]
    else:
        share = chance.choice((0.05, 0.3, 0.5, 0.9))
        red = [cell for cell in every if chance.random() < share]
    taken = set(red)
    return red, [cell for cell in every if cell not in taken], sizes


def held(box):
    return set(product(*box))


@pytest.mark.parametrize("seed", range(200))
def test_the_patterns_of_a_random_table_hold_its_red_cells_and_no_other(seed):
    red, others, sizes = table(seed)
    found = fewest(red, others, sizes)
    for name in ("used", "widest"):
        cells = set().union(*(held(getattr(box, name)) for box in found))
        assert set(red) <= cells
        assert not set(others) & cells
    for box in found:
        assert box.inside == len(held(box.widest) & set(red)) > 0
        assert box.outside == 0
        assert all(set(used) <= set(widest) for used, widest in zip(box.used, box.widest, strict=True))


def subsets(size):
    return list(chain.from_iterable(combinations(range(size), n) for n in range(1, size + 1)))


def fewest_by_search(red, others, sizes):
    """The smallest number of boxes that hold all of `red` and none of `others`: every box, then every choice."""
    red, others = frozenset(red), frozenset(others)
    covers = set()
    for box in product(*map(subsets, sizes)):
        cells = held(box)
        if not cells & others and cells & red:
            covers.add(frozenset(cells & red))
    covers = [one for one in covers if not any(one < other for other in covers)]

    def within(left, number):
        if not left:
            return True
        if not number:
            return False
        cell = min(left)
        return any(within(left - one, number - 1) for one in covers if cell in one)

    return next(number for number in range(len(red) + 1) if within(red, number))


@pytest.mark.parametrize("seed", range(60))
def test_there_are_as_few_as_a_search_through_all_boxes_finds(seed):
    chance = random.Random(seed)
    sizes = chance.choice([(3, 2, 2), (4, 3), (2, 2, 2, 2), (3, 3, 2), (4, 4)])
    every = [cell for cell in product(*map(range, sizes)) if chance.random() < 0.9]
    red = [cell for cell in every if chance.random() < chance.choice((0.3, 0.5, 0.7))]
    others = [cell for cell in every if cell not in red]
    assert len(fewest(red, others, sizes)) == fewest_by_search(red, others, sizes)


@pytest.mark.parametrize("seed", [19, 31, 49, 54, 58, 60])
def test_where_taking_the_largest_first_takes_too_many_there_are_still_the_fewest(seed):
    """Tables, found by trial, for which a greedy choice has one or two boxes more than the smallest one."""
    chance = random.Random(seed)
    sizes = chance.choice([(3, 3, 3), (4, 4, 2), (5, 5), (3, 3, 2, 2)])
    every = list(product(*map(range, sizes)))
    red = [cell for cell in every if chance.random() < 0.55]
    taken = set(red)
    others = [cell for cell in every if cell not in taken]
    assert len(fewest(red, others, sizes)) == fewest_by_search(red, others, sizes)


def test_what_does_not_exist_may_be_in_a_pattern():
    """Two diagonal cells: one box where the other diagonal does not exist, two where it does."""
    red, others = [(0, 0), (1, 1)], [(0, 1), (1, 0)]
    assert len(fewest(red, [], (2, 2))) == 1
    assert len(fewest(red, others, (2, 2))) == 2


def test_what_a_larger_pattern_holds_is_not_said_again():
    """An L of three cells: two boxes that could share the corner, said as a row and what is left of the column."""
    found = fewest([(0, 0), (0, 1), (1, 0)], [(1, 1)], (2, 2))
    assert [box.widest for box in found] == [((0,), (0, 1)), ((0, 1), (0,))]
    assert [box.used for box in found] == [((0,), (0, 1)), ((1,), (0,))]


def test_nothing_red_needs_no_pattern_and_everything_red_needs_one():
    every = list(product(range(3), range(4)))
    assert fewest([], every, (3, 4)) == []
    (box,) = fewest(every, [], (3, 4))
    assert box.widest == ((0, 1, 2), (0, 1, 2, 3))
    (alone,) = fewest([()], [], ())
    assert alone.inside == 1


def test_a_rough_pattern_counts_what_it_holds_beside():
    """A block of 30 without two scattered cells is one rough pattern with two counterexamples."""
    every = list(product(range(3), range(5), range(6)))
    block = [cell for cell in every if cell[0] == 1]
    red = [cell for cell in block if cell not in ((1, 0, 0), (1, 3, 4))]
    split = Grid(every, (3, 5, 6)).split(red)
    exact = split.fewest()
    assert len(exact) > 1
    (rough,) = split.roughly(exact)
    assert rough.used == ((1,), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5))
    assert (rough.inside, rough.outside) == (28, 2)


def test_a_rough_pattern_is_not_offered_for_many_counterexamples():
    every = list(product(range(4), range(4)))
    red = [(i, i) for i in range(4)]
    split = Grid(every, (4, 4)).split(red)
    assert len(split.roughly(split.fewest())) == 4


def test_the_same_cells_in_another_order_give_the_same_patterns():
    red, others, sizes = table(4)
    again = random.Random(1)
    shuffled = again.sample(red, len(red)), again.sample(others, len(others))
    assert len(fewest(*shuffled, sizes)) == len(fewest(red, others, sizes))
    assert fewest(red, others, sizes) == fewest(red, others, sizes)


def test_a_cell_that_is_there_twice_is_one():
    (box,) = Grid([(0, 1), (0, 0), (0, 1)], (1, 2)).split([(0, 1), (0, 1)]).fewest()
    assert (box.used, box.inside) == (((0,), (1,)), 1)


@pytest.mark.parametrize("noise", [True, False])
def test_ten_thousand_cells_are_covered_exactly(noise):
    """2,000 red ones: as noise, where nearly each is a pattern of its own, and as causes with exceptions."""
    chance, sizes = random.Random(7), (5, 7, 2, 6, 3, 8)
    every = list(product(*map(range, sizes)))
    red = chance.sample(every, 2_000) if noise else [c for c in every if c[0] == 2 and chance.random() < 0.99]
    taken = set(red)
    others = [cell for cell in every if cell not in taken]
    found = fewest(red, others, sizes)
    assert set(red) <= set().union(*(held(box.used) for box in found))
