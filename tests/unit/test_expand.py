"""Cells: every combination once, in order, each with an id that is safe everywhere."""

import re
from collections.abc import Callable
from itertools import islice, product
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from runner import matrix
from runner.axes import AXES, COUNTS, NEUTRAL
from runner.conditions import Condition, Selector
from runner.expand import cells
from runner.matrix import Matrix, Rule
from runner.model import AxisValue, Load

LOAD = Load(
    name="solo",
    max_num_seqs=1,
    max_num_batched_tokens=1,
    max_model_len=1,
    block_size=16,
    num_heads=1,
    num_kv_heads=1,
    head_size=64,
    dtype="bfloat16",
)


def test_an_id_joins_the_labels_in_the_order_of_the_file(small: Matrix) -> None:
    ids = [cell.id for cell in cells(small)]
    assert ids[:3] == [
        "0.32.0-flashinfer-sm90-hybrid_on-k0-c64-solo",
        "0.32.0-flashinfer-sm90-hybrid_on-k0-c8192-solo",
        "0.32.0-flashinfer-sm90-hybrid_on-k1-c64-solo",
    ]
    assert len(ids) == 2 * 3 * 2 * 3 * 2


def test_an_id_says_nothing_of_an_axis_that_is_as_vllm_or_the_load_has_it(shipped: Matrix) -> None:
    special = {"kv_dtype": ("auto", "fp8"), "page_size": (32,), "draft": ("ngram", "eagle"), "cudagraph": ("full",)}
    first = {axis: values[:1] for axis, values in shipped.axes.items()}
    assert [cell.id.split("solo")[1] for cell in cells(shipped, {**first, **special})] == [
        "-page32-cudagraph_full",
        "-page32-cudagraph_full-eagle",
        "-kv_fp8-page32-cudagraph_full",
        "-kv_fp8-page32-cudagraph_full-eagle",
    ]


def test_a_matrix_without_the_optional_axes_has_them_all_as_they_are_by_default(small: Matrix) -> None:
    for cell in cells(small):
        assert {axis: cell.axes[axis] for axis in NEUTRAL} == NEUTRAL


def test_another_order_of_axes_in_the_file_gives_another_order_of_labels(in_small: Callable[..., Path]) -> None:
    path = in_small()
    path.write_text(path.read_text().replace("  load: [solo]\n", "").replace("axes:\n", "axes:\n  load: [solo]\n"))
    assert next(cells(matrix.load(path))).id == "solo-0.32.0-flashinfer-sm90-hybrid_on-k0-c64"


def test_an_excluded_cell_stays_and_says_why_by_the_first_rule_that_excludes_it(in_small: Callable[..., Path]) -> None:
    second = "because: no GPU\n  - exclude: {arch: cpu}\n    because: second"
    chart = matrix.load(in_small("because: no GPU", second))
    reasons = {(cell.axes["backend"], cell.axes["arch"]): cell.unsupported for cell in cells(chart)}
    assert reasons["flashinfer", "cpu"] == "no GPU"
    assert reasons["flash_attn", "cpu"] == "second"
    assert reasons["flash_attn", "sm90"] == ""


def test_cells_come_lazily_so_that_the_first_is_there_before_the_last(small: Matrix) -> None:
    many = {"spec_k": tuple(range(10_000)), "chunk": tuple(range(1, 10_000))}
    huge = Matrix(axes={**small.axes, **many}, loads=small.loads, environments={}, tiers={})
    assert [cell.axes["chunk"] for cell in islice(cells(huge), 2)] == [1, 2]


names = st.lists(st.from_regex(r"[a-z0-9_.]{1,6}", fullmatch=True), min_size=1, max_size=2, unique=True)
counts = st.lists(st.integers(0, 9999), min_size=1, max_size=3, unique=True)
REQUIRED = [axis for axis in AXES if axis not in NEUTRAL]
OTHER: dict[str, tuple[AxisValue, ...]] = {
    "kv_dtype": ("fp8",),
    "head_size": (64, 16),
    "group_size": (1, 16),
    "page_size": (16,),
    "cudagraph": ("none", "full"),
    "draft": ("eagle",),
}


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    axes: dict[str, tuple[AxisValue, ...]] = {}
    optional = draw(st.sets(st.sampled_from(sorted(OTHER)), max_size=4))
    for axis in draw(st.permutations([*REQUIRED, *sorted(optional)])):
        axes[axis] = (
            (NEUTRAL[axis], *OTHER[axis]) if axis in OTHER else tuple(draw(counts if axis in COUNTS else names))
        )
    axes |= {"hybrid": ("on", "off"), "load": ("solo",)}
    backend = draw(st.sampled_from(axes["backend"]))
    rule = Rule(selector=Selector({"backend": Condition("=", (backend,))}), because="so")
    return Matrix(axes=axes, loads={"solo": LOAD}, environments={}, rules=(rule,), tiers={})


@given(chart=matrices())
def test_ids_are_unique_and_safe_and_every_combination_is_there_once(chart: Matrix) -> None:
    made = list(cells(chart))
    assert [tuple(cell.axes.values()) for cell in made] == list(product(*chart.axes.values()))
    assert len({cell.id for cell in made}) == len(made)
    assert all(re.fullmatch(r"[a-z0-9_.]+(-[a-z0-9_.]+){6,12}", cell.id) for cell in made)
    assert all(tuple(cell.axes) == tuple(cell.labels) == tuple(chart.axes) for cell in made)
    excluded = sum(bool(cell.unsupported) for cell in made)
    assert excluded * len(chart.axes["backend"]) == len(made)
