"""Filters, tiers and shards: what they let through, and what they say when it is nothing."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.axes import arch_alias
from runner.errors import NothingSelected, UsageError
from runner.expand import cells
from runner.matrix import Matrix
from runner.model import Cell
from runner.select import Shard, parse, parse_shard, select, tier


def chosen(chart: Matrix, *filters: str) -> list[Cell]:
    selection = parse(filters, chart)
    return [cell for cell in cells(chart) if selection(cell)]


def values(found: Sequence[Cell], axis: str) -> set[object]:
    return {cell.axes[axis] for cell in found}


@pytest.mark.parametrize(
    ("text", "axis", "expected"),
    [
        ("sm100", "arch", {"sm100"}),
        ("SM100", "arch", {"sm100"}),
        ("k3", "spec_k", {3}),
        ("c8192", "chunk", {8192}),
        ("hybrid_off", "hybrid", {"off"}),
        ("0.32.0", "vllm", {"0.32.0"}),
        ("sm90,sm100", "arch", {"sm90", "sm100"}),
        (" sm90 , sm100 ", "arch", {"sm90", "sm100"}),
        ("arch=sm90,h100,b200", "arch", {"sm90", "sm100"}),
        ("10.0", "arch", {"sm100"}),
        ("10.0a", "arch", {"sm100"}),
        ("b200", "arch", {"sm100"}),
        ("arch=b200", "arch", {"sm100"}),
        ("h100", "arch", {"sm90"}),
        ("9.0a", "arch", {"sm90"}),
        ("sm_90a", "arch", {"sm90"}),
        ("a100", "arch", {"sm80"}),
        ("l40s,rtx4090", "arch", {"sm89"}),
        ("gb300", "arch", {"sm103"}),
        ("12.0f", "arch", {"sm120"}),
        ("spec_k>=3", "spec_k", {3, 5, 7}),
        ("spec_k>3", "spec_k", {5, 7}),
        ("spec_k<2", "spec_k", {0, 1}),
        ("spec_k<=2", "spec_k", {0, 1, 2}),
        ("spec_k=3", "spec_k", {3}),
        ("spec_k==k3", "spec_k", {3}),
        ("spec_k = 3 , spec_k > 5", "spec_k", {3, 7}),
        ("spec_k!=0", "spec_k", {1, 2, 3, 5, 7}),
        ("arch!=sm90,arch!=sm100,arch!=cpu", "arch", {"sm80", "sm89", "sm103", "sm120"}),
        ("hybrid=on", "hybrid", {"on"}),
        ("hybrid!=hybrid_on", "hybrid", {"off"}),
        ("*-sm9?-*,*-sm8?-*", "arch", {"sm90"} | {"sm80", "sm89"}),
        ("*-k[35]-*", "spec_k", {3, 5}),
    ],
)
def test_a_filter_lets_through_exactly_these_values(
    text: str, axis: str, expected: set[object], shipped: Matrix
) -> None:
    found = chosen(shipped, text)
    assert values(found, axis) == expected
    others = {len(values(found, a)) == len(v) for a, v in shipped.axes.items() if a != axis}
    assert others == {True}, "a filter on one axis leaves the others whole"


def test_comma_is_or_within_an_axis_and_and_between_axes(shipped: Matrix) -> None:
    found = chosen(shipped, "sm90,sm100,flashinfer")
    assert values(found, "arch") == {"sm90", "sm100"}
    assert values(found, "backend") == {"flashinfer"}
    assert found == chosen(shipped, "sm90,sm100", "flashinfer")


def test_several_filters_are_joined_by_and(shipped: Matrix) -> None:
    assert values(chosen(shipped, "spec_k>1", "spec_k<5"), "spec_k") == {2, 3}
    assert chosen(shipped, "sm90", "sm100") == []


def test_a_whole_id_selects_its_cell(shipped: Matrix) -> None:
    id_ = "0.32.0-flashinfer-sm100-hybrid_on-k3-c8192-solo"
    assert [cell.id for cell in chosen(shipped, id_)] == [id_]
    assert len(chosen(shipped, f"{id_},{id_.replace('k3', 'k5')}")) == 2


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (["arc=sm90"], "unknown axis 'arc' in filter 'arc=sm90', did you mean 'arch'?"),
        (["sm90,"], "has an empty word"),
        ([""], "has an empty word"),
        (["spec_k>=three"], "does not compare with a whole number"),
        (["spec_k>="], "does not compare with a whole number"),
        (["arch>=sm90"], "axis 'arch' has no order"),
        (["arch="], "malformed filter 'arch='"),
        (["arch==!=sm90"], "malformed filter"),
        (["=sm90"], "unknown axis ''"),
        (["spec_k"], "'spec_k' in a filter is an axis"),
    ],
)
def test_a_malformed_filter_is_a_usage_error_that_says_how_to_write_one(
    filters: list[str], said: str, shipped: Matrix
) -> None:
    with pytest.raises(UsageError) as caught:
        select(shipped, filters=filters)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (["sm101"], "no label is 'sm101', did you mean 'sm"),
        (["flash_infer"], "'flashinfer'"),
        (["arch=sm91"], "axis 'arch' has no value 'sm91', did you mean"),
        (["spec_k=4"], "axis 'spec_k' has no value '4'; there is 0, 1, 2, 3, 5, 7"),
        (["sm90*"], "a glob is matched against whole ids, try '*sm90*'"),
        (["sm90", "arch!=sm90"], "no cell matches all of 'sm90', 'arch!=sm90'"),
        (["arch=sm90,arch!=sm90"], "no cell matches 'arch=sm90,arch!=sm90'"),
        (
            ["0.32.0-flashinfer-sm100-hybrid_on-k3-c8192-sol"],
            "did you mean '0.32.0-flashinfer-sm100-hybrid_on-k3-c8192-solo'?",
        ),
    ],
)
def test_a_filter_that_matches_nothing_names_what_is_near(filters: list[str], said: str, shipped: Matrix) -> None:
    with pytest.raises(NothingSelected) as caught:
        select(shipped, filters=filters)
    assert said in str(caught.value)


@pytest.mark.parametrize("word", ["sm", "90", "9", "h", "sm9", "k3", "cpu", "0.32.0", "1.2.3", "10.0.1", ""])
def test_what_names_no_arch_is_no_alias(word: str) -> None:
    assert arch_alias(word) in (None, word)


def test_a_tier_is_filters_with_a_name_to_which_others_are_added(small: Matrix) -> None:
    quick = select(small, tier_name="quick")
    assert values(quick, "arch") == {"sm90", "sm100"}
    assert values(quick, "spec_k") == {0, 1}
    assert values(select(small, tier_name="quick", filters=["k1"]), "spec_k") == {1}
    with pytest.raises(UsageError, match="unknown tier 'quik', did you mean 'quick'"):
        tier("quik", small)


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/", "/4", "a/b", "-1/4", "1/4/2", "1/0", " 1/4"])
def test_a_malformed_shard_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="write I/N"):
        parse_shard(text)


@pytest.mark.parametrize("total", [1, 3, 7, 36])
def test_shards_are_a_partition_into_parts_of_equal_size(total: int, shipped: Matrix) -> None:
    everything = select(shipped, filters=["sm90", "c64"])
    parts = [select(shipped, filters=["sm90", "c64"], shard=Shard(i, total)) for i in range(1, total + 1)]
    order = {cell.id: place for place, cell in enumerate(everything)}
    assert sorted((cell.id for part in parts for cell in part), key=order.__getitem__) == [c.id for c in everything]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all([order[c.id] for c in part] == sorted(order[c.id] for c in part) for part in parts)


def test_each_of_three_shards_gets_every_load(shipped: Matrix) -> None:
    for index in (1, 2, 3):
        assert values(select(shipped, shard=Shard(index, 3)), "load") == {"solo", "small", "server"}


def test_a_shard_beyond_the_cells_is_nothing_selected(shipped: Matrix) -> None:
    with pytest.raises(NothingSelected, match="shard 2/2 is empty: only 1 cells are selected"):
        select(shipped, filters=["0.32.0-flashinfer-sm100-hybrid_on-k3-c8192-solo"], shard=Shard(2, 2))


words = st.sampled_from(
    ["sm90", "b200", "cpu", "flashinfer", "k3", "spec_k>=3", "arch!=sm90", "hybrid=on", "*-c64-*", "solo", "chunk<1024"]
)


@given(texts=st.lists(st.lists(words, min_size=1, max_size=4).map(",".join), max_size=3), more=words)
@settings(max_examples=60, deadline=None)
def test_filters_obey_their_laws(texts: list[str], more: str, small_matrix_cells: tuple[Matrix, list[Cell]]) -> None:
    chart, everything = small_matrix_cells
    base, narrowed = parse(texts, chart), parse([*texts, more], chart)
    kept = {cell.id for cell in everything if base(cell)}
    assert {c.id for c in everything if narrowed(c)} <= kept, "another filter never adds a cell"
    assert {c.id for c in everything if parse(texts[::-1], chart)(c)} == kept, "the order of filters means nothing"
    swapped = [",".join(reversed(text.split(","))) for text in texts]
    assert {c.id for c in everything if parse(swapped, chart)(c)} == kept, "the order of words means nothing"
    assert {c.id for c in everything if parse([*texts, *texts], chart)(c)} == kept, "twice is once"


@pytest.fixture(scope="session")
def small_matrix_cells(shipped: Matrix) -> tuple[Matrix, list[Cell]]:
    return shipped, list(cells(shipped))[::7]
