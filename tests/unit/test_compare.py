"""What a comparison says of each pair of outcomes, what makes it worse, and what it must not claim."""

from dataclasses import replace

import pytest

from runner.compare import Harm, Kind, compare, troubles
from runner.errors import UsageError
from runner.model import CaseResult, Evidence, How, State, Verdict
from tests.unit.synthetic import MASK, cell, overflow, overflowed

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


PASS, FAIL, REFUSED = cell(), cell(State.FAIL), cell(State.REFUSED)
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
        (PASS, cell(State.MISSING), Kind.GONE, False),
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
