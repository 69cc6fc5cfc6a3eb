"""Failures that look alike become one finding, and the patterns of a group hold exactly its cells."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.model import CaseResult, How, State, Verdict
from runner.reports import patterns, text
from runner.reports.fields import fields, headline
from runner.reports.findings import findings
from runner.reports.grouping import groups
from tests.unit.synthetic import INDPTR, ISSUE, LENGTHS, MASK, cause, cell, failed, overflow, overflowed, results

SMALL = {"vllm": ("0.32.0",), "backend": ("a", "b"), "spec_k": (0, 1, 2, 3), "chunk": (64, 8192), "load": ("solo",)}
EVERY = [cell(axes=dict(zip(SMALL, values, strict=True))) for values in product(*SMALL.values())]


@settings(deadline=None)  # the first call imports a solver
@given(st.sets(st.sampled_from(range(len(EVERY))), min_size=1))
def test_patterns_hold_each_cell_and_no_other(chosen):
    axes = patterns.domain(EVERY)
    rows = [EVERY[number] for number in sorted(chosen)]
    held = {cell for box in patterns.fewest(rows, axes) for cell in product(*box.used)}
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


def test_each_overflow_of_a_cell_is_a_finding_of_its_own_whichever_cases_end_at_it():
    row = cell(State.OVERFLOW, overflowed(MASK), overflowed(INDPTR, overflow(), overflow(buffer="paged_kv_indices")))
    assert [(f.case, f.overflow.buffer, f.also) for f in findings(row)] == [
        (INDPTR, "paged_kv_indptr", (MASK,)),  # the case that is named after the buffer tells it
        (INDPTR, "paged_kv_indices", ()),
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


def test_what_a_dead_process_kept_from_running_is_listed_under_its_death():
    rest = [CaseResult(name=f"test_{n}", state=State.NOT_RUN, message="it had died before") for n in range(10)]
    row = cell(State.CRASH, failed("test_a"), CaseResult(name="test_b", state=State.CRASH, message="SIGSEGV"), *rest)
    fault, death = findings(row)
    assert (fault.case, fault.also) == ("test_a", ())
    assert (death.case, death.also) == ("test_b", tuple(f"test_{n}" for n in range(10)))


def test_one_assertion_of_vllm_is_one_group_whichever_case_and_backend_meets_it():
    """One assertion met by 41 groups on the old product."""
    rows = [
        cell(
            State.FAIL,
            failed(f"test_{number % 7}", words=f"no room for {number} of [{number}, {number + 1}, {number * 10}] rows"),
            axes={"backend": ("flashinfer", "flash_attn", "flex_attention")[number % 3], "spec_k": number},
        )
        for number in range(41)
    ]
    (group,) = groups(rows)
    assert (len(group.cells), group.backends) == (41, ("flashinfer", "flash_attn", "flex_attention"))
    assert headline(group) == "fail at flashinfer.py:812 · flashinfer, flash_attn, flex_attention · 41 cells · emulated"
    raised = "AssertionError at vllm/v1/attention/backends/flashinfer.py:812 in build: no room for 0 of [0, 1, 0] rows"
    (shown,) = [field for field in fields(group, patterns.domain(rows), brief=False) if field.name == "raised"]
    assert shown.lines == [raised]


def test_one_fault_in_eleven_cases_of_a_cell_is_one_finding_and_the_others_follow_it():
    row = cell(State.FAIL, *(failed(f"test_{n}", words=f"row {n}") for n in range(11)))
    (finding,) = findings(row)
    assert (finding.case, finding.also) == ("test_0", tuple(f"test_{n}" for n in range(1, 11)))
    (group,) = groups([row])
    named = {field.name: field.lines for field in fields(group, patterns.domain([row]), brief=False)}
    assert named["case"] == ["test_0"]
    assert named["also"] == ["10 cases: " + ", ".join(finding.also[:6]) + ", and 4 more"]


@pytest.mark.parametrize(
    "other",
    [{"line": 813}, {"words": "no page"}, {"file": "vllm/v1/x.py"}, {"function": "plan"}, {"exception": "KeyError"}],
)
def test_another_line_or_other_words_are_another_cause(other):
    assert len(findings(cell(State.FAIL, failed("test_a"), failed("test_b", **other)))) == 2
    assert len(groups([cell(State.FAIL, failed()), cell(State.FAIL, failed(**other), axes={"spec_k": 1})])) == 2


def test_a_line_that_moves_from_release_to_release_is_one_cause_and_two_lines_of_a_release_are_two():
    places = {"0.30.0": (700, 790), "0.31.0": (812, 900)}
    rows = [
        cell(State.FAIL, failed(line=line), axes={"vllm": vllm, "spec_k": number})
        for vllm, lines in places.items()
        for number, line in enumerate(lines)
    ]
    first, second = groups(rows)
    assert {row.axes["spec_k"] for row in first.cells} == {0}
    assert {row.axes["spec_k"] for row in second.cells} == {1}
    (shown,) = [field for field in fields(first, patterns.domain(rows), brief=True) if field.name == "raised"]
    assert shown.lines[1:] == ["in other releases at vllm/v1/attention/backends/flashinfer.py:812"]


def test_what_one_line_raised_is_one_group_where_a_buffer_was_seen_and_where_none_was():
    """The overflow comes first: it says more than the exception."""
    raised = overflowed(INDPTR, message="m", cause=cause())
    rows = [
        cell(State.FAIL, failed("test_a"), axes={"spec_k": 2}),
        cell(State.OVERFLOW, failed("test_a"), raised),
        cell(State.OVERFLOW, raised, axes={"spec_k": 1}),
    ]
    (group,) = groups(rows)
    assert (group.verdict, group.buffer, len(group.cells)) == (Verdict.OVERFLOW, "paged_kv_indptr", 3)
    assert group.cases == (INDPTR, "test_a")
    (both,) = findings(rows[1])
    assert (both.case, both.also) == (INDPTR, ("test_a",))


def test_a_known_cause_and_the_same_one_where_it_is_not_known_are_two_groups():
    raised = overflowed(INDPTR, cause=cause())
    rows = [
        replace(cell(State.OVERFLOW, raised), verdict=Verdict.XFAIL, known=ISSUE),
        cell(State.FAIL, failed("test_a"), axes={"spec_k": 1}),
    ]
    assert [group.verdict for group in groups(rows)] == [Verdict.FAIL, Verdict.XFAIL]


def test_one_assertion_is_one_group_whatever_else_is_wrong_in_its_cells():
    rows = [
        cell(State.FAIL, failed()),
        cell(State.CRASH, failed(), CaseResult(name="test_b", state=State.CRASH, message="x"), axes={"spec_k": 1}),
    ]
    assert [(group.verdict, len(group.cells)) for group in groups(rows)] == [(Verdict.CRASH, 1), (Verdict.FAIL, 2)]


@pytest.mark.parametrize("state", [State.INFRA, State.MISSING, State.SUBSTITUTED])
def test_what_all_cases_of_a_cell_take_from_what_they_share_is_one_group(state):
    """A package that is not there was nine groups of one cell on the old product."""
    cases = [CaseResult(name=f"test_{n}", state=state, message="No module named 'b12x'") for n in range(9)]
    rows = [cell(state, *cases), cell(state, *cases[3:], axes={"spec_k": 1})]
    (group,) = groups(rows)
    assert len(group.cells) == 2


def test_a_refusal_that_nobody_expects_is_a_finding_with_its_reason_and_cause():
    cases = [failed(f"test_{n}", state=State.REFUSED) for n in range(11)]
    row = replace(cell(State.REFUSED, *cases), verdict=Verdict.UNEXPECTED, reason="no room (unexpected: no entry)")
    other = replace(
        cell(State.REFUSED, failed(state=State.REFUSED, words="no kernel"), axes={"spec_k": 1}),
        verdict=Verdict.UNEXPECTED,
    )
    first, _ = groups([row, other])
    assert headline(first) == "refused! at flashinfer.py:812 · flashinfer · 1 cell · emulated"
    assert (first.example.message, len(first.cases)) == ("no room (unexpected: no entry)", 11)
    bare = [replace(one, cases=tuple(replace(case, cause=None) for case in one.cases)) for one in (row, other)]
    assert [len(group.cells) for group in groups(bare)] == [1, 1], "told apart by their words"


BAD = [state for state in State if state.bad and state is not State.NOT_RUN]


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from(BAD), st.integers(0, 2), st.booleans()), min_size=1, max_size=6),
            st.sampled_from(["0.31.0", "0.32.0"]),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_no_bad_case_is_lost_and_known_ones_never_mix_with_others(drawn):
    rows = []
    for number, (cases, vllm, known) in enumerate(drawn):
        made = [
            replace(
                failed(f"test_{n}", state=state, line=line, words=f"{line} of {n}"),
                overflow=(overflow(buffer=f"buffer_{line}"),) if state is State.OVERFLOW else (),
                cause=cause(f"{line} of {n}", line) if has else None,
            )
            for n, (state, line, has) in enumerate(cases)
        ]
        worst = min((case.state for case in made), key=list(State).index)
        row = cell(worst, *made, axes={"vllm": vllm, "spec_k": number})
        rows.append(replace(row, verdict=Verdict.XFAIL, known=ISSUE) if known else row)
    found = groups(rows)
    for row in rows:
        mine = [group for group in found if row in group.cells]
        assert {case.name for case in row.cases} <= {name for group in mine for name in group.cases}
        assert all(group.expected == (row.verdict is Verdict.XFAIL) for group in mine)
    assert sum(group.times_told + group.times_unjudged for group in found) >= sum(len(row.cases) for row in rows)


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


def test_what_went_wrong_with_another_batch_is_a_finding_beside_the_overflow_of_its_case():
    case = replace(overflowed(cause=cause()), state=State.FAIL, message="... and another batch: ZeroDivisionError")
    told = findings(cell(State.FAIL, case))
    assert {(one.state, one.overflow is not None) for one in told} == {(State.FAIL, False), (State.OVERFLOW, True)}


def test_what_did_not_run_after_the_machine_ended_the_process_is_listed_under_it():
    cases = [
        CaseResult(name="test_a", state=State.INFRA, message="killed by SIGILL"),
        CaseResult(name="test_b", state=State.NOT_RUN, message="the cell's process had died before"),
    ]
    (one,) = findings(cell(State.INFRA, *cases))
    assert (one.case, one.also) == ("test_a", ("test_b",))
