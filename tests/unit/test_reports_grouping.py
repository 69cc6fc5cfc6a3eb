"""Failures that look alike become one finding, and the patterns of a group hold exactly its cells."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.model import CaseResult, How, State, Verdict
from runner.reports import patterns, text
from runner.reports.grouping import findings, groups
from tests.unit.synthetic import INDPTR, LENGTHS, MASK, cell, overflow, overflowed, results

SMALL = {"vllm": ("0.32.0",), "backend": ("a", "b"), "spec_k": (0, 1, 2, 3), "chunk": (64, 8192), "load": ("solo",)}
EVERY = [cell(axes=dict(zip(SMALL, values, strict=True))) for values in product(*SMALL.values())]


@settings(deadline=None)  # the first call imports a solver
@given(st.sets(st.sampled_from(range(len(EVERY))), min_size=1))
def test_boxes_hold_each_cell_and_no_other(chosen):
    axes = patterns.domain(EVERY)
    rows = [EVERY[number] for number in sorted(chosen)]
    held = {cell for box in patterns.boxes(rows, axes) for cell in product(*box.used)}
    assert held == {tuple(axes[axis].index(row.axes[axis]) for axis in axes) for row in rows}


def test_a_product_is_one_line_in_the_words_of_the_field():
    everything = list(results())
    rows = [row for row in everything if row.state is State.OVERFLOW and row.axes["arch"] in ("sm80", "sm89", "sm90")]
    rows = [row for row in rows if row.axes["load"] == "solo" and row.axes["chunk"] != 8192]
    assert patterns.compact(rows, patterns.domain(everything), limit=5) == ["flashinfer sm80,sm89,sm90 c64,c1024 solo"]


def test_what_the_rules_exclude_is_not_said():
    """flashinfer is excluded on arch cpu alone: that it is everywhere else needs no list of archs."""
    everything = list(results())
    rows = [row for row in everything if row.axes["backend"] == "flashinfer" and row.axes["arch"] != "cpu"]
    assert patterns.compact(rows, patterns.domain(everything), limit=5) == ["flashinfer"]


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        ((3,), "k3"),
        ((1, 2, 3), "k1-3"),
        ((3, 4, 5, 7), "k>=3"),
        ((0, 1), "k0,1"),
        ((0, 1, 2, 3, 4, 5), "k<=5"),
        ((0, 1, 3, 4, 5, 7), "k!=2"),
        ((1, 3, 5, 7), "odd k"),
        ((3, 5, 7), "odd k>=3"),
        ((3, 5), "k3,5"),
        ((0, 2, 4), "even k"),
        ((0, 4), "k0,4"),
        ((1, 2, 5), "k1,2,5"),
    ],
)
def test_values_are_said_as_briefly_as_they_can_be(taken, words):
    ks = [cell(axes={"spec_k": k, "arch": arch}) for k in (0, 1, 2, 3, 4, 5, 7) for arch in ("sm90", "sm100")]
    rows = [row for row in ks if row.axes["spec_k"] in taken and row.axes["arch"] == "sm100"]
    assert patterns.compact(rows, patterns.domain(ks), limit=2) == [f"sm100 {words}"]


def test_all_values_but_one_are_said_by_the_one():
    rows = [row for row in results() if row.axes["arch"] != "cpu" and row.axes["backend"] == "flash_attn"]
    chosen = [row for row in rows if row.axes["arch"] != "sm100"]
    assert patterns.compact(chosen, patterns.domain(rows), limit=1) == ["arch!=sm100"]


def test_patterns_that_are_too_many_are_counted_by_their_cells():
    scattered = [
        row for row in EVERY if (row.axes["spec_k"] + (row.axes["chunk"] == 64) + (row.axes["backend"] == "a")) % 2
    ]
    # 8 of 16 cells in a pattern like that of odd k in one backend and chunk: 4 patterns of 2 cells
    lines = patterns.compact(scattered, patterns.domain(EVERY), limit=1)
    assert len(lines) == 2
    assert lines[1] == "… and 6 more in 3 patterns"


def test_a_pattern_that_is_not_exact_is_offered_with_its_counterexamples():
    everything = list(results())
    rows = [row for row in everything if row.axes["backend"] == "triton_attn" and row.axes["arch"] == "sm90"]
    holes = [row for row in rows if (row.axes["spec_k"], row.axes["chunk"]) in ((1, 64), (5, 1024), (7, 8192))]
    holes = [row for row in holes if row.axes["load"] == "small" and row.axes["hybrid"] == "on"]
    chosen = [row for row in rows if row not in holes]
    # 2 hybrid, 6 k, 3 chunks, 3 loads are 108 cells, less the three
    lines = patterns.compact(chosen, patterns.domain(everything), limit=3)
    assert lines[-1] == "nearly: triton_attn sm90 (105 cells; not 3 others)"


def test_a_run_of_one_cell_has_a_pattern():
    assert patterns.compact(EVERY[:1], patterns.domain(EVERY[:1]), limit=3) == ["every cell of the run"]


def test_each_overflow_of_a_cell_is_a_finding_of_its_own():
    row = cell(State.OVERFLOW, overflowed(INDPTR, overflow(), overflow(buffer="paged_kv_indices")), overflowed(MASK))
    assert [(f.case, f.overflow.buffer) for f in findings(row)] == [
        (INDPTR, "paged_kv_indptr"),
        (INDPTR, "paged_kv_indices"),
        (MASK, "paged_kv_indptr"),
    ]


def test_cells_group_by_state_backend_and_by_buffer_and_how_whichever_case_shows_it():
    base = overflowed(INDPTR, overflow())
    rows = [
        cell(State.OVERFLOW, base),
        cell(State.OVERFLOW, base, axes={"arch": "sm90"}),
        cell(State.OVERFLOW, base, axes={"backend": "flex_attention"}),
        cell(State.OVERFLOW, overflowed(INDPTR, overflow(How.SILENT)), axes={"arch": "sm100"}),
        cell(State.OVERFLOW, overflowed(INDPTR, overflow(buffer="other")), axes={"arch": "sm100"}),
        cell(State.OVERFLOW, overflowed(LENGTHS, overflow()), axes={"arch": "sm103"}),
    ]
    found = groups(rows)
    assert sorted(len(group.cells) for group in found) == [1, 1, 1, 3]
    assert len(found[0].cells) == 3, "the largest first"
    assert found[0].cases == (INDPTR, LENGTHS)


def test_what_is_no_overflow_groups_by_case():
    rows = [
        cell(State.FAIL, CaseResult(name=name, state=State.FAIL, message="it was so"), axes={"arch": arch})
        for name, arch in (("test_a", "sm90"), ("test_a", "sm100"), ("test_b", "sm120"))
    ]
    assert sorted((len(group.cells), group.cases) for group in groups(rows)) == [(1, ("test_b",)), (2, ("test_a",))]


def test_the_example_has_the_smallest_batch_and_the_widest_gap_is_kept():
    rows = [
        cell(State.OVERFLOW, overflowed(INDPTR, overflow(required=564, tokens=36000))),
        cell(State.OVERFLOW, overflowed(INDPTR, overflow(required=3, tokens=65)), axes={"arch": "sm90"}),
    ]
    (group,) = groups(rows)
    assert (group.example.overflow.required, group.widest.required) == (3, 564)


def test_worst_first_and_expected_last():
    rows = [
        replace(cell(State.CRASH, axes={"arch": "sm80"}), verdict=Verdict.XFAIL),
        cell(State.FAIL, axes={"arch": "sm89"}),
        cell(State.CRASH, axes={"arch": "sm90"}),
        replace(cell(axes={"arch": "sm100"}), verdict=Verdict.XPASS),
    ]
    assert [group.verdict for group in groups(rows)] == [Verdict.XPASS, Verdict.CRASH, Verdict.FAIL, Verdict.XFAIL]


def test_what_a_dead_process_kept_from_running_is_no_finding():
    row = cell(
        State.CRASH,
        CaseResult(name="test_a", state=State.CRASH, message="killed by SIGSEGV"),
        CaseResult(name="test_b", state=State.NOT_RUN, message="the cell's process had died before"),
    )
    assert [finding.case for finding in findings(row)] == ["test_a"]


def test_a_cell_whose_trouble_no_case_tells_speaks_for_itself():
    row = cell(State.INFRA, CaseResult(name="test_a", state=State.PASS), reason="the daemon went away")
    (finding,) = findings(row)
    assert (finding.state, finding.case, finding.message) == (State.INFRA, "", "the daemon went away")


def test_troubles_without_a_case_group_by_their_words_but_not_by_their_numbers():
    reasons = ["no room: 12 bytes", "no room: 7 bytes", "no image"]
    rows = [replace(cell(State.INFRA), id=str(i), cases=(), reason=reason) for i, reason in enumerate(reasons)]
    assert [len(group.cells) for group in groups(rows)] == [2, 1]


def test_good_cells_have_no_findings():
    assert groups([cell(), cell(State.REFUSED), cell(State.UNSUPPORTED), cell(State.SKIPPED)]) == ()


@given(st.text())
def test_plain_text_is_printable_whatever_came(anything):
    shown = text.plain(anything)
    assert all(
        char == "\n" or char.isprintable() or char == " " or ord(char) in (0xA0, 0x3000) or char.isspace()
        for char in shown
    )
    assert not set(shown) & {"\x1b", "\r", "\x00", "\u202e", "\u200b", "\x9b", "\ud800"}
    shown.encode("utf-8")


@given(st.text(), st.integers(20, 100))
def test_one_line_is_one_line_within_its_limit(anything, limit):
    shown = text.one_line(anything, limit)
    assert len(shown) <= limit
    assert "\n" not in shown


def test_a_message_keeps_its_end_where_the_error_stands():
    lines = text.several_lines("\n".join(f"line {i}" for i in range(20)), lines=3)
    assert lines == ["… 17 lines above", "line 17", "line 18", "line 19"]
