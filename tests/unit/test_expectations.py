"""What becomes of a state once the known issues are applied."""

from dataclasses import replace
from datetime import date

import pytest

from runner.conditions import Condition, Selector
from runner.expectations import apply, refusals, unwanted
from runner.matrix import Expectation, KnownIssue
from runner.model import CaseResult, Cell, How, State, Verdict
from tests.loads import SOLO
from tests.unit.synthetic import INDPTR, ISSUE, MASK, cell, overflow, overflowed

TODAY = date(2026, 11, 29)
EVERYWHERE = Selector({})
ELSEWHERE = Selector({"backend": Condition("=", ("flash_attn",))})


def known(state=State.OVERFLOW, **fields):
    made = KnownIssue(selector=EVERYWHERE, state=state, issue=ISSUE, because="sized by requests")
    return replace(made, **fields)


def judged(result, *entries):
    return apply(result, entries, today=TODAY)


def test_a_known_state_is_expected_and_carries_its_link():
    result = judged(cell(State.OVERFLOW, overflowed()), known())
    assert (result.state, result.verdict, result.known) == (State.OVERFLOW, Verdict.XFAIL, ISSUE)


def test_without_entries_the_naked_truth_stays():
    result = judged(replace(cell(State.OVERFLOW, overflowed()), verdict=Verdict.XFAIL, known=ISSUE))
    assert (result.verdict, result.known) == (Verdict.OVERFLOW, "")


def test_a_pass_under_a_known_issue_is_a_surprise():
    result = judged(cell(), known())
    assert (result.verdict, result.known) == (Verdict.XPASS, ISSUE)
    assert result.reason == f"{ISSUE} is known here as overflow, but the cell passes"


ROOMY = {"paged_kv_indptr": [17, 17], "xqa_draft_mask": [16, 16]}
"""Bounds of a load in which chunks add no row: each request fits in one."""


@pytest.mark.parametrize(
    ("bounds", "buffer", "verdict"),
    [
        (ROOMY, ("paged_kv_indptr",), Verdict.PASS),
        (ROOMY, ("paged_kv_indptr", "xqa_draft_mask"), Verdict.PASS),
        (ROOMY, (), Verdict.PASS),
        ({**ROOMY, "paged_kv_indptr": [18, 17]}, ("xqa_draft_mask",), Verdict.PASS),
        ({**ROOMY, "paged_kv_indptr": [18, 17]}, ("paged_kv_indptr", "xqa_draft_mask"), Verdict.XPASS),
        ({**ROOMY, "paged_kv_indptr": [18, 17]}, (), Verdict.XPASS),
        (ROOMY, ("persistent_doc_ids",), Verdict.XPASS),
        ({}, (), Verdict.XPASS),
        *[
            ({"paged_kv_indptr": bad}, ("paged_kv_indptr",), Verdict.XPASS)
            for bad in (None, [17], "1717", {}, [1, "1"])
        ],
        *[(bad, ("paged_kv_indptr",), Verdict.XPASS) for bad in (None, [], "paged_kv_indptr", 17)],
    ],
)
def test_a_pass_where_the_deployment_cannot_overflow_is_a_pass(bounds, buffer, verdict):
    result = replace(cell(), resolved={"bounds": bounds})
    assert judged(result, known(buffer=buffer)).verdict is verdict
    assert judged(result, known(State.FAIL)).verdict is Verdict.XPASS, "no bound speaks of a failure"
    named = known(buffer=buffer, selector=Selector({"load": Condition("=", ("solo",))}))
    assert judged(result, named).verdict is Verdict.XPASS, "an entry that names the load means it"


def test_an_overflow_where_the_deployment_cannot_overflow_is_another_one():
    overflowing = cell(State.OVERFLOW, overflowed())
    entry = known(buffer=("paged_kv_indptr",))
    assert judged(overflowing, entry).verdict is Verdict.XFAIL
    assert judged(replace(overflowing, resolved={"bounds": ROOMY}), entry).verdict is Verdict.OVERFLOW


def test_a_buffer_that_cannot_overflow_is_no_surprise_beside_one_that_does():
    result = replace(cell(State.OVERFLOW, overflowed()), resolved={"bounds": {**ROOMY, "paged_kv_indptr": [20, 17]}})
    assert judged(result, known(buffer=("paged_kv_indptr", "xqa_draft_mask"))).verdict is Verdict.XFAIL
    mask = known(buffer=("xqa_draft_mask",), issue="https://example.org/mask")
    assert judged(result, known(buffer=("paged_kv_indptr",)), mask).verdict is Verdict.XFAIL


@pytest.mark.parametrize("state", [State.UNSUPPORTED, State.SKIPPED])
def test_what_was_not_judged_neither_confirms_nor_refutes_an_issue(state):
    assert judged(cell(state), known()).verdict.value == state.value


@pytest.mark.parametrize("state", [State.CRASH, State.FAIL, State.INFRA, State.NOT_RUN, State.MISSING])
def test_another_bad_state_than_the_known_one_is_no_expected_one(state):
    assert judged(cell(state), known()).verdict.value == state.value


def test_an_entry_for_other_cells_is_ignored():
    assert judged(cell(State.OVERFLOW, overflowed()), known(selector=ELSEWHERE)).verdict is Verdict.OVERFLOW
    assert judged(cell(), known(selector=ELSEWHERE)).verdict is Verdict.PASS


def test_how_must_fit_where_the_entry_names_it():
    raised = cell(State.OVERFLOW, overflowed(INDPTR, overflow(How.RAISED)))
    assert judged(raised, known(how=(How.RAISED, How.SHORT))).verdict is Verdict.XFAIL
    assert judged(raised, known(how=(How.SILENT,))).verdict is Verdict.OVERFLOW


def test_a_new_way_of_overflowing_does_not_hide_behind_a_known_one():
    both = cell(
        State.OVERFLOW,
        overflowed(INDPTR, overflow(How.RAISED)),
        overflowed(MASK, overflow(How.SILENT, buffer="draft_mask")),
    )
    result = judged(both, known(how=(How.RAISED,)))
    assert result.verdict is Verdict.OVERFLOW
    assert f"does not cover {MASK}" in result.reason
    assert judged(both, known(how=(How.RAISED,)), known(how=(How.SILENT,))).verdict is Verdict.XFAIL


def test_a_new_buffer_does_not_hide_behind_a_known_one():
    two = cell(State.OVERFLOW, overflowed(INDPTR, overflow(), overflow(buffer="brand_new")))
    result = judged(two, known(buffer=("paged_kv_indptr",)))
    assert result.verdict is Verdict.OVERFLOW
    assert f"does not cover {INDPTR} (brand_new raised)" in result.reason
    assert judged(two, known(buffer=("paged_kv_indptr", "brand_new"))).verdict is Verdict.XFAIL


def test_a_named_buffer_that_holds_is_a_surprise_beside_one_that_does_not():
    one = cell(State.OVERFLOW, overflowed(INDPTR, overflow()))
    mask = known(buffer=("draft_mask",), issue="https://example.org/mask")
    result = judged(one, known(buffer=("paged_kv_indptr",)), mask)
    assert (result.verdict, result.known) == (Verdict.XPASS, "https://example.org/mask")
    assert "draft_mask" in result.reason


def test_a_new_failure_does_not_hide_behind_a_known_overflow_of_the_same_cell():
    failed = CaseResult(name="test_other", state=State.FAIL, message="no")
    result = judged(cell(State.OVERFLOW, overflowed(), failed), known())
    assert result.verdict is Verdict.OVERFLOW
    assert "does not cover test_other" in result.reason


def test_cases_that_a_known_crash_kept_from_running_are_no_news():
    cases = (
        CaseResult(name="test_a", state=State.CRASH, message="killed by SIGSEGV"),
        CaseResult(name="test_b", state=State.NOT_RUN, message="the cell's process had died before"),
    )
    assert judged(cell(State.CRASH, *cases), known(State.CRASH)).verdict is Verdict.XFAIL


def test_a_cell_that_failed_without_a_case_can_be_known_too():
    dead = replace(cell(State.CRASH), cases=(), reason="killed by SIGKILL")
    assert judged(dead, known(State.CRASH)).verdict is Verdict.XFAIL


def test_an_entry_counts_through_its_last_day_and_says_that_it_expired_after():
    result = cell(State.OVERFLOW, overflowed())
    assert judged(result, known(until=TODAY)).verdict is Verdict.XFAIL
    expired = judged(result, known(until=date(2026, 11, 28)))
    assert (expired.verdict, expired.known) == (Verdict.OVERFLOW, "")
    assert "expired on 2026-11-28" in expired.reason
    assert judged(cell(), known(until=date(2026, 11, 28))).verdict is Verdict.PASS


def test_the_links_of_all_entries_that_explain_a_cell_are_kept_once():
    result = judged(cell(State.OVERFLOW, overflowed()), known(), known(), known(issue="https://example.org/2"))
    assert result.known == f"{ISSUE} https://example.org/2"


FLAKE = "https://example.org/flake"


def test_a_flaky_entry_tolerates_both_ways_and_counts():
    flake = known(State.FAIL, flaky=True)
    for result in (cell(), cell(State.FAIL)):
        found = judged(result, flake)
        assert (found.state, found.verdict, found.known) == (result.state, Verdict.FLAKY, ISSUE)


def test_a_flaky_entry_tolerates_nothing_else():
    flake = known(State.FAIL, flaky=True)
    assert judged(cell(State.CRASH), flake).verdict is Verdict.CRASH
    failed = CaseResult(name="test_other", state=State.FAIL, message="no")
    both = judged(cell(State.OVERFLOW, overflowed(), failed), flake)
    assert both.verdict is Verdict.OVERFLOW
    assert f"does not cover {INDPTR} (paged_kv_indptr raised)" in both.reason


@pytest.mark.parametrize("first", [0, 1])
def test_a_stable_entry_beside_a_flaky_one_stays_strict(first):
    entries = [known(State.FAIL), known(State.FAIL, flaky=True, issue=FLAKE)]
    entries = entries[first:] + entries[:first]
    passed, failed = judged(cell(), *entries), judged(cell(State.FAIL), *entries)
    assert (passed.verdict, passed.known) == (Verdict.XPASS, ISSUE)
    assert (failed.verdict, failed.known) == (Verdict.XFAIL, ISSUE)


def test_what_only_a_flaky_entry_explains_makes_the_cell_flaky():
    failed = CaseResult(name="test_other", state=State.FAIL, message="no")
    result = judged(cell(State.OVERFLOW, overflowed(), failed), known(), known(State.FAIL, flaky=True, issue=FLAKE))
    assert (result.verdict, result.known) == (Verdict.FLAKY, f"{ISSUE} {FLAKE}")
    without_the_flake = judged(cell(State.OVERFLOW, overflowed()), known(), known(State.FAIL, flaky=True, issue=FLAKE))
    assert (without_the_flake.verdict, without_the_flake.known) == (Verdict.XFAIL, ISSUE)


def test_a_buffer_that_a_flaky_entry_names_may_hold():
    result = cell(State.OVERFLOW, overflowed())
    mask = known(buffer=("draft_mask",), issue=FLAKE)
    assert judged(result, known(), mask).verdict is Verdict.XPASS
    assert judged(result, known(), replace(mask, flaky=True)).verdict is Verdict.XFAIL


def test_an_entry_counts_up_to_the_cells_of_its_last_release():
    entry = known(until="0.31.0", after=frozenset({"0.32.0", "0.33.0"}))
    old, new = (cell(State.OVERFLOW, overflowed(), axes={"vllm": v}) for v in ("0.31.0", "0.32.0"))
    assert judged(old, entry).verdict is Verdict.XFAIL
    result = judged(new, entry)
    assert (result.verdict, result.known, result.expired) == (Verdict.OVERFLOW, "", ISSUE)
    assert "has expired after 0.31.0" in result.reason


def test_an_expired_entry_is_named_with_each_cell_that_it_spoke_of():
    old = known(until=date(2026, 11, 28))
    for result in (cell(), cell(State.OVERFLOW, overflowed())):
        assert judged(result, old).expired == ISSUE
        assert judged(result, replace(old, selector=ELSEWHERE)).expired == ""
    assert judged(cell(State.FAIL), old).expired == "", "of another trouble it has nothing to say"
    assert judged(cell(State.REFUSED), old).expired == ""


def test_a_pass_behind_the_last_release_is_what_was_hoped_for():
    assert judged(cell(), known(until="0.31.0", after=frozenset({"0.32.0"}))).expired == ""


def test_an_entry_that_counts_beside_an_expired_one_still_covers():
    result = judged(cell(State.OVERFLOW, overflowed()), known(until=date(2026, 11, 28)), known(issue=FLAKE))
    assert (result.verdict, result.known, result.expired) == (Verdict.XFAIL, FLAKE, ISSUE)


def test_a_known_death_is_a_reason_not_to_run_a_cell():
    one = Cell(id="a", axes={"backend": "flashinfer", "vllm": "0.32.0"}, labels={}, load=SOLO)

    def why(*entries):
        return unwanted(entries, TODAY)(one)

    assert why() == why(known(), known(State.FAIL)) == ""
    for state in (State.CRASH, State.OOM, State.TIMEOUT):
        assert why(known(), known(state)) == f"{state} is known here ({ISSUE}): not run without --run-known-crashes"
        assert why(known(state, flaky=True))
        assert why(known(state, selector=ELSEWHERE)) == ""
        assert why(known(state, until=date(2026, 11, 28))) == "", "an expired entry keeps nothing from running"
        assert why(known(state, until="0.31.0", after=frozenset({"0.32.0"}))) == ""


def test_a_cell_that_was_not_run_for_a_known_death_carries_its_link():
    reason = f"crash is known here ({ISSUE}): not run without --run-known-crashes"
    result = judged(cell(State.SKIPPED, reason=reason), known(State.CRASH), known(issue=FLAKE))
    assert (result.verdict, result.known) == (Verdict.SKIPPED, ISSUE)
    lacking = judged(cell(State.SKIPPED, reason="there is no sm90 device here"), known(State.CRASH))
    assert (lacking.verdict, lacking.known) == (Verdict.SKIPPED, "")


SAID = "vLLM says: NVFP4 is\nnot stored by   this backend"
BEFORE = {"0.32.0": "0.31.0", "0.33.0": "0.32.0", "fix": "0.32.0"}
EVERY_RELEASE = Expectation(selector=EVERYWHERE, refusal="NVFP4 is not stored by this", because="the backend says so")
OF_032 = replace(EVERY_RELEASE, selector=Selector({"vllm": Condition("=", ("0.32.0",))}))


def refused(release="0.32.0", reason=SAID, **fields):
    found = cell(State.REFUSED, reason=reason, **fields)
    return apply(replace(found, axes={**found.axes, "vllm": release}), (), today=TODAY)


def one_refusal(*entries, reason=SAID, others=()):
    return refusals([refused(reason=reason), *others], entries, BEFORE)[0]


def test_a_refusal_is_clean_only_where_an_entry_names_its_reason():
    assert one_refusal().verdict is Verdict.UNEXPECTED
    assert (
        one_refusal(EVERY_RELEASE, reason="Model architectures ['X'] failed to be inspected").verdict.fault.value
        == "product"
    )
    clean = one_refusal(EVERY_RELEASE)
    assert (clean.verdict, clean.expected) == (Verdict.REFUSED, "the backend says so")
    assert one_refusal(replace(EVERY_RELEASE, selector=ELSEWHERE)).verdict is Verdict.UNEXPECTED


def test_a_refusal_that_nobody_named_says_what_is_missing():
    assert one_refusal().reason.endswith("(unexpected: no entry under `expect` of the matrix names this reason)")


def test_a_refusal_where_the_release_before_passed_needs_an_entry_that_names_the_release():
    passed = replace(refused("0.31.0"), state=State.PASS, verdict=Verdict.PASS)
    lost = one_refusal(EVERY_RELEASE, others=[passed])
    assert lost.verdict is Verdict.UNEXPECTED
    assert "0.31.0 passes this cell" in lost.reason
    assert one_refusal(OF_032, others=[passed]).verdict is Verdict.REFUSED
    older = replace(passed, axes={**passed.axes, "vllm": "0.33.0"})
    assert one_refusal(EVERY_RELEASE, others=[older]).verdict is Verdict.REFUSED


def test_the_release_before_a_candidate_is_the_one_that_it_is_over():
    passed = replace(refused("0.32.0"), state=State.PASS, verdict=Verdict.PASS)
    (found, _) = refusals([refused("fix"), passed], [EVERY_RELEASE], BEFORE)
    assert found.verdict is Verdict.UNEXPECTED
    assert "0.32.0 passes this cell" in found.reason


def test_no_known_issue_makes_a_refusal_expected():
    assert judged(refused(), known(State.FAIL), known()).verdict is Verdict.UNEXPECTED


def test_what_went_wrong_with_another_batch_does_not_hide_behind_a_known_overflow_of_its_case():
    """One case finds a known overflow, and vLLM raises otherwise on another of its batches: then it is `fail`."""
    case = replace(overflowed(), state=State.FAIL, message="... and another batch: ZeroDivisionError")
    found = judged(cell(State.FAIL, case), known())
    assert found.verdict is Verdict.FAIL
    assert f"does not cover {case.name}" in found.reason
    assert judged(cell(State.FAIL, case), known(), known(State.FAIL)).verdict is Verdict.XFAIL
