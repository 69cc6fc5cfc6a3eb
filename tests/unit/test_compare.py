"""What a comparison says of each pair of outcomes, what makes it worse, and what it must not claim."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.compare import Harm, Kind, compare, details, troubles
from runner.errors import UsageError
from runner.model import CaseResult, Evidence, Fault, How, State, Verdict
from runner.outcome import worst
from tests.unit.synthetic import MASK, VIRTUAL, cell, overflow, overflowed

OLD, NEW = {"vllm": "0.27.1"}, {"vllm": "0.28.0"}


def said(state, *hows, buffer="mask", axes=None, **fields):
    """A cell in this state, with an overflow of the buffer in each of these ways."""
    cases = [overflowed(MASK, overflow(how, buffer=buffer)) for how in hows]
    return cell(state, *cases, axes=axes or {}, **fields)


def pair(before, after):
    (change,) = compare(
        [replace(before, axes={**before.axes, **OLD})], [replace(after, axes={**after.axes, **NEW})]
    ).changes
    return change


PASS = cell(State.PASS, *(CaseResult(name=name, state=State.PASS) for name in (VIRTUAL, MASK)))
FAIL, REFUSED = cell(State.FAIL), cell(State.REFUSED)
CRASH, OOM, INFRA = cell(State.CRASH), cell(State.OOM), cell(State.INFRA)
RAISED = said(State.OVERFLOW, How.RAISED)


def over(*hows, buffer="mask"):
    return said(State.OVERFLOW, *hows, buffer=buffer)


@pytest.mark.parametrize(
    ("before", "after", "kind", "worse"),
    [
        (PASS, PASS, Kind.SAME, False),
        (PASS, FAIL, Kind.REGRESSED, True),
        (PASS, RAISED, Kind.REGRESSED, True),
        (PASS, REFUSED, Kind.REGRESSED, True),
        (REFUSED, RAISED, Kind.REGRESSED, True),
        (REFUSED, REFUSED, Kind.SAME, False),
        (REFUSED, PASS, Kind.FIXED, False),
        (FAIL, PASS, Kind.FIXED, False),
        (RAISED, PASS, Kind.FIXED, False),
        (RAISED, REFUSED, Kind.CHANGED, False),
        (FAIL, FAIL, Kind.STILL, False),
        (RAISED, RAISED, Kind.STILL, False),
        # what says nothing is worse than what stops the engine
        (RAISED, over(How.SILENT), Kind.CHANGED, True),
        (RAISED, over(How.SHORT), Kind.CHANGED, True),
        (RAISED, over(How.RESIZED), Kind.CHANGED, True),
        (FAIL, over(How.SILENT), Kind.CHANGED, True),
        (CRASH, over(How.SILENT), Kind.CHANGED, True),
        (over(How.SHORT), over(How.SILENT), Kind.CHANGED, True),
        (over(How.SILENT), RAISED, Kind.CHANGED, False),
        (over(How.LATENT), RAISED, Kind.CHANGED, True),
        (RAISED, FAIL, Kind.CHANGED, True),
        (FAIL, CRASH, Kind.CHANGED, True),
        (CRASH, FAIL, Kind.CHANGED, False),
        # as harmful: worse where there is trouble that was not there
        (RAISED, over(How.RAISED, buffer="other"), Kind.CHANGED, True),
        (over(How.SHORT, How.RAISED), over(How.SHORT), Kind.CHANGED, False),
        (over(How.SHORT), over(How.SHORT, How.RAISED), Kind.CHANGED, True),
        (CRASH, OOM, Kind.CHANGED, True),
        # not judged on one side
        (INFRA, PASS, Kind.NEW, False),
        (INFRA, RAISED, Kind.NEW, False),
        (PASS, INFRA, Kind.GONE, False),
        (RAISED, cell(State.UNSUPPORTED), Kind.GONE, False),
        (PASS, cell(State.MISSING), Kind.GONE, True),
        (PASS, cell(State.SUBSTITUTED), Kind.GONE, True),
        (RAISED, cell(State.MISSING), Kind.GONE, False),
        (cell(State.MISSING), PASS, Kind.NEW, False),
        (PASS, cell(State.UNSUPPORTED), Kind.GONE, False),
        (cell(State.SUBSTITUTED), PASS, Kind.NEW, False),
    ],
)
def test_each_pair_of_outcomes_has_its_kind(before, after, kind, worse):
    change = pair(before, after)
    assert (change.kind, change.worse) == (kind, worse)


@pytest.mark.parametrize("state", [State.UNSUPPORTED, State.SKIPPED, State.NOT_RUN, State.INFRA, State.MISSING])
def test_what_was_judged_on_neither_side_is_no_change(state):
    found = compare([cell(state)], [cell(state)])
    assert (found.changes, len(found.unjudged), found.exit_code) == ((), 1, 5)


def test_a_known_issue_hides_nothing():
    known = replace(RAISED, verdict=Verdict.XFAIL)
    assert pair(PASS, known).kind is Kind.REGRESSED
    assert pair(RAISED, known).kind is Kind.STILL


@pytest.mark.parametrize(
    ("before", "after"), [(Evidence.DEVICE, Evidence.EMULATED), (Evidence.EMULATED, Evidence.DEVICE)]
)
def test_different_evidence_is_never_a_claim_about_a_device(before, after):
    for old, new, worse in ((PASS, PASS, False), (PASS, RAISED, True), (RAISED, PASS, False)):
        change = pair(replace(old, evidence=before), replace(new, evidence=after))
        assert (change.kind, change.worse, change.on_device) == (Kind.ONLY_EMULATED, worse, False)
        assert change.evidence == (before, after)


def test_only_two_devices_are_a_claim_about_a_device():
    on_gpu = {"evidence": Evidence.DEVICE}
    assert pair(replace(PASS, **on_gpu), replace(RAISED, **on_gpu)).on_device
    assert not pair(PASS, RAISED).on_device


def test_two_releases_are_matched_by_all_but_the_release():
    before = [cell(axes=OLD | {"spec_k": k}) for k in (0, 1)]
    after = [cell(State.FAIL, axes=NEW | {"spec_k": k}) for k in (1, 2)]
    found = compare(before, after)
    assert (found.along, found.sides) == ("vllm", ("0.27.1", "0.28.0"))
    assert {change.axes["spec_k"]: change.kind for change in found.changes} == {
        0: Kind.GONE,
        1: Kind.REGRESSED,
        2: Kind.NEW,
    }
    assert all("vllm" not in change.axes for change in found.changes)


def test_two_runs_of_the_same_releases_are_matched_by_all_axes():
    before = [cell(axes=OLD), cell(axes=NEW)]
    after = [cell(axes=OLD), cell(State.FAIL, axes=NEW), cell(axes={"vllm": "0.29.0"})]
    found = compare(before, after)
    assert found.along == ""
    assert {change.axes["vllm"]: change.kind for change in found.changes} == {
        "0.27.1": Kind.SAME,
        "0.28.0": Kind.REGRESSED,
        "0.29.0": Kind.NEW,
    }


def test_several_releases_without_a_common_one_are_not_guessed_at():
    with pytest.raises(UsageError, match="say which two"):
        compare([cell(axes=OLD), cell(axes=NEW)], [cell(axes={"vllm": "0.29.0"})])


def test_the_order_of_axes_and_rows_does_not_matter():
    one, two = cell(axes={"spec_k": 1}), cell(axes={"spec_k": 2})
    turned = [replace(row, axes=dict(reversed(row.axes.items()))) for row in (two, one)]
    assert [change.kind for change in compare([one, two], turned).changes] == [Kind.SAME, Kind.SAME]


def test_what_differs_by_design_can_be_another_axis():
    before = [RAISED]
    after = [replace(PASS, axes={**PASS.axes, "backend": "flash_attn"})]
    (change,) = compare(before, after, along="backend").changes
    assert change.kind is Kind.FIXED


@pytest.mark.parametrize(
    ("pairs", "code"),
    [
        ([(PASS, PASS)], 0),
        ([(RAISED, PASS), (PASS, INFRA)], 3),
        ([(RAISED, PASS), (PASS, cell(State.UNSUPPORTED))], 0),
        ([(PASS, RAISED), (PASS, INFRA)], 1),
        ([(PASS, INFRA)], 5),
        ([], 5),
        ([(INFRA, RAISED), (PASS, PASS)], 0),
        ([(RAISED, PASS), (PASS, cell(State.MISSING))], 1),
        ([(RAISED, PASS), (RAISED, cell(State.MISSING))], 3),
        ([(PASS, PASS), (PASS, cell(State.SKIPPED))], 3),
    ],
)
def test_the_exit_code_says_whether_something_got_worse(pairs, code):
    before = [replace(old, axes={**old.axes, "spec_k": k}) for k, (old, _) in enumerate(pairs)]
    after = [replace(new, axes={**new.axes, "spec_k": k}) for k, (_, new) in enumerate(pairs)]
    assert compare(before, after).exit_code == code


def test_trouble_is_named_by_buffer_and_how_or_by_the_case():
    row = cell(
        State.OVERFLOW,
        overflowed(MASK, overflow(How.SILENT, buffer="mask"), overflow(How.RAISED, buffer="indptr")),
        CaseResult(name="test_tokens", state=State.FAIL, message="wrong"),
    )
    assert [(str(one), one.harm) for one in troubles(row)] == [
        ("overflow silent in mask", Harm.SILENT),
        ("fail in test_tokens", Harm.WRONG),
        ("overflow raised in indptr", Harm.RAISED),
    ]
    assert [str(one) for one in troubles(replace(CRASH, cases=()))] == ["crash"]
    assert troubles(INFRA) == troubles(PASS) == ()


A, B = "test_a", "test_b"


def of(state, verdict=None, **said):
    """A cell in this state with cases that said so."""
    cases = [CaseResult(name=name, state=State(word), message="it was so") for name, word in said.items()]
    row = cell(State(state), *cases)
    return replace(row, cases=tuple(cases), verdict=verdict or row.verdict)


@pytest.mark.parametrize("word", ["missing", "substituted"])
def test_a_case_that_passed_and_gives_no_verdict_now_got_worse(word):
    """XQA given a bool for its mask: our case trips, and nothing else in the cell says so."""
    before, after = of("pass", test_a="pass", test_b="pass"), of(word, test_a="pass", test_b=word)
    change = pair(before, after)
    assert (change.kind, change.worse, change.lost) == (Kind.GONE, True, False)
    assert list(details(change)) == ["pass", f"{word} in test_b"]
    assert compare([before], [after]).exit_code == 1


def test_a_lost_verdict_does_not_hide_behind_trouble_that_both_sides_have():
    before = of("overflow", test_a="overflow", test_b="pass")
    change = pair(before, of("overflow", test_a="overflow", test_b="missing"))
    assert (change.kind, change.worse) == (Kind.CHANGED, True)
    assert list(details(change)) == ["overflow in test_a", "overflow in test_a; missing in test_b"]


def test_a_lost_verdict_does_not_hide_behind_a_fix():
    before = of("overflow", test_a="overflow", test_b="pass")
    change = pair(before, of("missing", test_a="pass", test_b="missing"))
    assert (change.kind, change.worse) == (Kind.CHANGED, True)


def test_a_case_that_is_not_there_any_more_got_worse():
    change = pair(of("pass", test_a="pass", test_b="pass"), of("pass", test_a="pass"))
    assert (change.kind, change.worse) == (Kind.GONE, True)
    assert list(details(change)) == ["pass", "no result in test_b"]


def test_where_the_cases_are_others_a_case_that_is_not_there_is_lost_and_not_worse():
    digests = [{"cases_digest": one} for one in ("aa", "bb")]
    before, after = of("pass", test_a="pass", test_b="pass"), of("pass", test_a="pass")
    before, after = (replace(row, environment=env) for row, env in zip((before, after), digests, strict=True))
    change = pair(before, after)
    assert (change.kind, change.worse, change.lost) == (Kind.GONE, False, True)


def test_along_another_axis_than_the_release_cases_differ_by_design():
    before = of("pass", test_a="pass", test_b="pass")
    after = of("pass", test_a="pass")
    (change,) = compare([before], [replace(after, axes={**after.axes, "arch": "sm120"})], along="arch").changes
    assert (change.kind, change.worse, change.lost) == (Kind.SAME, False, False)
    after = of("fail", test_a="pass", test_c="fail")
    (change,) = compare([before], [replace(after, axes={**after.axes, "arch": "sm120"})], along="arch").changes
    assert (change.kind, change.worse, change.lost) == (Kind.REGRESSED, True, False)


@pytest.mark.parametrize("word", ["infra", "not_run", "skipped"])
def test_a_case_that_the_machine_kept_from_being_judged_is_lost_and_not_worse(word):
    before = of("pass", test_a="pass", test_b="pass")
    cut_off = [of(word, test_a="pass")] if word != "skipped" else []
    for after in (of(word, test_a="pass", test_b=word), of(word), *cut_off):
        change = pair(before, after)
        assert (change.kind, change.worse, change.lost) == (Kind.GONE, False, True)
    assert compare([before], [of(word, test_a="pass", test_b=word)]).exit_code == 3


def test_what_a_death_kept_from_running_got_worse():
    """The process died in the first case: the second is not the machine's."""
    before = of("crash", test_a="crash", test_b="pass")
    change = pair(before, of("crash", test_a="crash", test_b="not_run"))
    assert (change.kind, change.worse) == (Kind.CHANGED, True)


@pytest.mark.parametrize("verdict", [Verdict.REFUSED, Verdict.UNEXPECTED])
@pytest.mark.parametrize("other", ["pass", "fail"])
def test_a_refusal_of_what_passed_is_a_regression(verdict, other):
    """Also where another case of the cell had trouble before, so that the cell as a whole had not passed."""
    before = of(other, test_a="pass", test_b=other)
    change = pair(before, of("refused", verdict, test_a="refused", test_b="refused"))
    assert (change.kind, change.worse) == (Kind.REGRESSED, True)


@pytest.mark.parametrize(
    ("before", "after", "kind", "worse"),
    [
        (of("refused", Verdict.UNEXPECTED), of("refused", Verdict.UNEXPECTED), Kind.STILL, False),
        (of("refused"), of("refused", Verdict.UNEXPECTED), Kind.REGRESSED, True),
        (of("refused", Verdict.UNEXPECTED), of("refused"), Kind.CHANGED, False),
        (of("refused", Verdict.UNEXPECTED), PASS, Kind.FIXED, False),
        (of("refused", Verdict.UNEXPECTED), FAIL, Kind.CHANGED, True),
        (FAIL, of("refused", Verdict.UNEXPECTED), Kind.CHANGED, False),
        (REFUSED, cell(State.MISSING), Kind.GONE, True),
    ],
)
def test_a_refusal_that_nobody_expects_is_trouble(before, after, kind, worse):
    change = pair(before, after)
    assert (change.kind, change.worse) == (kind, worse)


@pytest.mark.parametrize("word", ["missing", "substituted", "infra", "not_run", "skipped"])
def test_nothing_is_fixed_because_it_was_not_judged(word):
    """One case is fixed, another one is not judged: on either side, or only now."""
    before = of("fail", test_a="fail", test_b="fail")
    for after in (of(word, test_a="pass", test_b=word), of("pass", test_a="pass")):
        assert pair(before, after).kind is Kind.CHANGED
        assert pair(before, after).lost
    if word != "skipped":
        assert pair(of("fail", test_a="fail", test_b=word), of(word, test_a="pass", test_b=word)).kind is Kind.CHANGED


def test_a_case_that_is_skipped_on_both_sides_keeps_nothing_from_being_fixed():
    before, after = of("fail", test_a="fail", test_b="skipped"), of("skipped", test_a="pass", test_b="skipped")
    assert pair(before, after).kind is Kind.FIXED


def test_what_is_judged_on_one_side_alone_never_outweighs_what_changed():
    """A case without a verdict before, and a case that broke: the cell is not `new`, nor its trouble unknown."""
    before = of("missing", test_a="pass", test_b="missing")
    change = pair(before, of("fail", test_a="fail", test_b="pass"))
    assert (change.kind, change.worse) == (Kind.REGRESSED, True)
    change = pair(before, of("fail", test_a="pass", test_b="fail"))
    assert (change.kind, change.worse) == (Kind.NEW, False)
    assert compare([PASS], [cell(State.MISSING)]).exit_code == 1  # and not 5, though nothing is judged on both sides


def test_a_case_that_broke_does_not_hide_behind_a_greater_harm_that_is_gone():
    before = replace(over(How.SILENT), cases=(*over(How.SILENT).cases, CaseResult(name=A, state=State.PASS)))
    after = of("fail", test_a="fail", **{MASK: "pass"})
    change = pair(before, after)
    assert (change.kind, change.worse) == (Kind.CHANGED, True)


CASES = st.dictionaries(st.sampled_from([A, B, "test_c"]), st.sampled_from(State), min_size=1)
SINGLE = st.sampled_from([State.UNSUPPORTED, State.SKIPPED, State.NOT_RUN, State.INFRA, State.MISSING, State.CRASH])


@st.composite
def rows(draw):
    """A cell as a run may leave it: the worst of its cases, or what befell the cell itself; a refusal named or not."""
    cases = draw(CASES)
    befell = draw(st.none() | SINGLE)
    if befell and draw(st.booleans()):
        cases = {}
    state = worst([*cases.values(), *([befell] if befell else [])])
    made = of(state, draw(st.sampled_from([None, Verdict.UNEXPECTED])) if state is State.REFUSED else None, **cases)
    return replace(made, evidence=draw(st.sampled_from([Evidence.EMULATED, Evidence.DEVICE])))


def found(before, after):
    return compare([before], [after])


@given(rows())
def test_nothing_changes_between_a_run_and_itself(row):
    same = found(row, row)
    assert {change.kind for change in same.changes} <= {Kind.SAME, Kind.STILL}
    assert not any(change.worse or change.lost for change in same.changes)
    assert same.exit_code in {0, 5}


def good(row):
    return {case.name for case in row.cases if case.state is State.PASS}


@given(rows(), rows())
def test_what_passed_and_is_not_worse_passes_still(before, after):
    """Exit 0, or a kind that says all is well: each case that passed passes, unless a rule took the cell out."""
    both = found(before, after)
    for change in (*both.changes, *both.unjudged):
        well = change.kind in {Kind.SAME, Kind.FIXED, Kind.STILL} or both.exit_code == 0
        excluded = all(state is State.UNSUPPORTED for state in (after.state, *(case.state for case in after.cases)))
        if well and not change.worse and not excluded:
            assert good(before) <= good(after)


@given(rows(), rows())
def test_fixed_means_that_every_case_was_judged_and_passes(before, after):
    for change in found(before, after).of(Kind.FIXED):
        assert not change.worse
        assert not change.lost
        assert all(case.state in {State.PASS, State.SKIPPED, State.UNSUPPORTED} for case in after.cases)
        assert {case.name for case in before.cases if judged_state(case.state)} <= good(after)


def judged_state(state):
    return state.fault is Fault.PRODUCT or state in {State.PASS, State.REFUSED}


MIRROR = {
    Kind.FIXED: {Kind.REGRESSED},
    Kind.SAME: {Kind.SAME},
    Kind.STILL: {Kind.STILL},
    Kind.ONLY_EMULATED: {Kind.ONLY_EMULATED},
    Kind.UNJUDGED: {Kind.UNJUDGED},
    # trouble that became a refusal is no fix, and a fix with a case left out is none either
    Kind.REGRESSED: {Kind.FIXED, Kind.CHANGED, Kind.REGRESSED},
}


@given(rows(), rows())
def test_the_way_back_is_the_mirror_of_the_way_there(before, after):
    there, back = found(before, after), found(after, before)
    (one,), (other,) = ((*side.changes, *side.unjudged) for side in (there, back))
    assert other.kind in MIRROR.get(one.kind, set(Kind))
    assert one.harm == other.harm[::-1]
    if one.kind in {Kind.SAME, Kind.STILL}:
        assert not one.worse
        assert not other.worse


@given(rows(), rows())
def test_the_refusal_of_what_passed_is_always_worse(before, after):
    others = {case.name for case in after.cases if case.state is not State.REFUSED}
    if after.state is State.REFUSED and good(before) - others:
        change = found(before, after).changes[0]
        assert change.worse
        assert change.kind in {Kind.REGRESSED, Kind.ONLY_EMULATED}


@given(st.lists(st.tuples(rows(), rows()), min_size=1, max_size=6))
def test_the_exit_code_of_many_cells_is_that_of_the_worst_of_them(pairs):
    def numbered(side):
        return [replace(row, axes={**row.axes, "spec_k": k}) for k, row in enumerate(side)]

    whole = compare(numbered([old for old, _ in pairs]), numbered([new for _, new in pairs])).exit_code
    single = [found(old, new).exit_code for old, new in pairs]
    assert (whole == 1) == (1 in single)
    assert (whole == 5) == (set(single) == {5})
