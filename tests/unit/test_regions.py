"""Regions against what they are by definition: the list of their cells."""

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from runner import regions
from runner.conditions import Condition, Selector

AXES = {"a": (0, 1, 2, 3), "b": ("x", "y", "z"), "c": ("on", "off")}


def conditions(axis: str) -> st.SearchStrategy[Condition]:
    values = st.lists(st.sampled_from(AXES[axis]), min_size=1, unique=True).map(tuple)
    named = st.builds(Condition, st.sampled_from(["=", "!="]), values)
    ordered = st.builds(Condition, st.sampled_from(["<", ">="]), st.sampled_from(AXES[axis]).map(lambda v: (v,)))
    return named | ordered if axis == "a" else named


selectors = st.fixed_dictionaries({}, optional={axis: conditions(axis) for axis in AXES}).map(Selector)


def cells(region):
    return [dict(zip(region, values, strict=True)) for values in product(*region.values())]


@given(where=selectors, rules=st.lists(selectors, max_size=4))
def test_what_is_left_is_each_cell_that_no_rule_takes_once(where, rules):
    expected = [c for c in cells(AXES) if where.matches(c) and not any(rule.matches(c) for rule in rules)]
    found = list(regions.left(regions.of(where, AXES), rules))
    assert Counter(tuple(c.values()) for r in found for c in cells(r)) == Counter(tuple(c.values()) for c in expected)
    assert regions.size(found) == len(expected)


def test_the_first_piece_of_what_very_many_rules_leave_is_found_at_once():
    axes = {str(i): (0, 1, 2) for i in range(40)}
    rules = [Selector({str(i): Condition("=", (0,)), str(i + 1): Condition("=", (0,))}) for i in range(39)]
    assert next(regions.left(axes, rules))
    assert regions.size(regions.left(axes, rules)) is None
