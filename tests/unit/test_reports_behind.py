"""A known issue hides nothing: what else its cells judged is said, and what they could not judge is counted."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from runner.model import CaseResult, State, Verdict
from runner.reports import behind, patterns
from runner.reports.fields import fields
from runner.reports.grouping import groups
from tests.unit.synthetic import INDPTR, ISSUE, MASK, cause, cell, failed, overflow, overflowed


def known(row, verdict=Verdict.XFAIL):
    return replace(row, verdict=verdict, known=ISSUE)


def passed(*names):
    return [CaseResult(name=name, state=State.PASS) for name in names]


def blocked(**fields):
    """Eleven cases: two buffers overflow, two more cases end at the first of them."""
    mask = overflow(buffer="draft_mask")
    bad = [overflowed("test_a"), overflowed(INDPTR), overflowed(MASK, mask), overflowed("test_b", overflow(), mask)]
    return known(cell(State.OVERFLOW, *bad, *passed(*"cdefghi"), **fields))


def test_a_cell_says_what_the_known_issue_explains_what_passed_and_what_could_not_judge():
    assert str(behind.of(blocked())) == (
        "the known issue explains 2 of 11 cases; 7 passed; 2 could not judge: test_a, test_b"
    )


def test_a_case_that_shows_something_else_as_well_is_explained_and_has_judged():
    row = known(cell(State.OVERFLOW, overflowed(), overflowed("test_a", overflow(), overflow(buffer="other"))))
    assert str(behind.of(row)) == "the known issue explains 2 of 2 cases"


def test_cases_that_a_death_kept_from_running_could_not_judge():
    rest = [CaseResult(name=name, state=State.NOT_RUN) for name in ("test_b", "test_c")]
    row = known(cell(State.CRASH, *passed("x"), CaseResult(name="test_a", state=State.CRASH), *rest))
    assert str(behind.of(row)) == "the known issue explains 1 of 4 cases; 1 passed; 2 could not judge: test_b, test_c"


def test_an_exception_from_the_line_of_the_known_overflow_judged_nothing():
    row = known(cell(State.OVERFLOW, overflowed(cause=cause()), failed("test_a")))
    assert behind.of(row).unjudged == ("test_a",)


def test_what_was_skipped_is_said():
    row = known(cell(State.OVERFLOW, overflowed(), *passed("a"), CaseResult(name="b", state=State.SKIPPED)))
    assert str(behind.of(row)) == "the known issue explains 1 of 3 cases; 1 passed; 1 skipped"


def test_nothing_is_behind_what_is_not_known_or_passes():
    row = cell(State.OVERFLOW, overflowed(), overflowed("test_b"))
    assert behind.of(row) is None
    assert behind.of(known(cell(), Verdict.FLAKY)) is None
    assert behind.line([row, cell()]) == ""


def test_a_group_says_what_its_cells_judged_besides():
    rows = [blocked(), blocked(axes={"spec_k": 1})]
    ended = "ended at the same overflow and judged nothing else"
    said = {}
    for group in groups(rows):
        named = {field.name: field.lines for field in fields(group, patterns.domain(rows), brief=True)}
        (said[group.buffer],) = named["besides"]
    assert said == {
        "paged_kv_indptr": f"14 cases passed; 4 {ended}: test_a, test_b; 2 are in other groups",
        "draft_mask": f"14 cases passed; 2 {ended}: test_b; 4 are in other groups",
    }


def test_a_group_of_cells_with_one_case_says_that_nothing_else_was_judged():
    (group,) = groups([known(cell(State.OVERFLOW, overflowed()))])
    assert behind.besides(group) == "no other case was judged"


def test_the_run_says_how_many_cases_were_not_judged():
    rows = [blocked(), blocked(axes={"spec_k": 1}), cell(axes={"spec_k": 2})]
    assert behind.line(rows) == "2 xfail: behind them 4 of 22 cases were not judged"
    flaky = known(cell(State.OVERFLOW, overflowed(), axes={"spec_k": 3}), Verdict.FLAKY)
    unrun = replace(cell(State.SKIPPED, axes={"spec_k": 5}), known=ISSUE)
    assert behind.line([*rows, flaky, unrun]) == (
        "2 xfail + 1 flaky: behind them 4 of 23 cases were not judged; 1 cell known to end its process was not run"
    )


CASES = st.sampled_from([state for state in State if state is not State.UNSUPPORTED])


@given(st.lists(st.tuples(CASES, st.integers(0, 2)), min_size=1, max_size=12))
def test_each_case_is_counted_once(drawn):
    cases = [
        overflowed(f"test_{n}", overflow(buffer=f"buffer_{which}"))
        if state is State.OVERFLOW
        else failed(f"test_{n}", state=state, line=which + 1)
        if state is State.FAIL
        else CaseResult(name=f"test_{n}", state=state, message=str(which))
        for n, (state, which) in enumerate(drawn)
    ]
    row = known(cell(min((case.state for case in cases), key=list(State).index), *cases))
    found = behind.of(row)
    assert (found is None) == (not row.state.bad)
    if found:
        assert found.cases == len(cases)
        assert not {*found.explained} & {*found.unjudged}
        bad = [case for case in cases if case.state.bad]
        assert len(found.explained) + len(found.unjudged) == len(bad)
