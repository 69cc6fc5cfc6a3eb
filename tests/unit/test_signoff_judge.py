"""The decision: each gap by itself, and what closes it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.model import CellResult, Evidence, State, Verdict
from runner.signoff.bundle import Derived
from tests.unit import signoffs
from tests.unit.signoffs import AT, ISSUE, POLICY, WAIVERS, ended, run, sign

K0 = "0.32.0-flash_attn-sm100-hybrid_on-k0-c64-small"
"""A cell that passes and that a device is asked for."""
KNOWN = "0.32.0-flashinfer-sm80-hybrid_on-k0-c64-small"


def decided(made: Derived) -> tuple[str, dict[str, list[str]]]:
    """The decision, and the open gaps by cell."""
    found = {one.cell.id: [gap.name for gap in one.open] for one in made.judgement.cells if one.open}
    return made.judgement.decision.value, found


def only(id_: str, change: Callable[[CellResult], CellResult]) -> Callable[[CellResult], CellResult]:
    return lambda row: change(row) if row.id == id_ else row


def environment(**values: str) -> Callable[[CellResult], CellResult]:
    return lambda row: replace(row, environment={**row.environment, **values})


def test_with_a_device_and_the_known_issue_waived_it_is_go_with_waivers(tmp_path: Path) -> None:
    _, made, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"]), waivers=WAIVERS)
    assert decided(made) == ("GO WITH WAIVERS", {})
    # 8 cells less the excluded one; two have the known issue
    assert [len(one.gaps) for one in made.judgement.cells].count(1) == 2
    assert len(made.judgement.cells) == 7


def test_where_everything_required_is_shown_it_is_go(tmp_path: Path) -> None:
    policy = POLICY.replace("[sm80]", '["sm80", "flash_attn"]')
    _, made, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"]), policy=policy)
    assert decided(made) == ("GO", {})


def test_without_a_device_each_cell_that_asks_for_one_lacks_its_evidence(tmp_path: Path) -> None:
    _, made, _ = sign(tmp_path, run(tmp_path, "a"), waivers=WAIVERS)
    decision, found = decided(made)
    assert decision == "NO-GO"
    assert found == {
        f"0.32.0-{backend}-sm100-hybrid_on-k{k}-c64-small": ["evidence"]
        for backend in ("flashinfer", "flash_attn")
        for k in (0, 3)
    }


def test_a_cell_that_no_run_planned_is_absent(tmp_path: Path) -> None:
    _, made, _ = sign(tmp_path, run(tmp_path, "a", "flashinfer", devices=["sm100"]), waivers=WAIVERS)
    assert decided(made)[1] == {
        "0.32.0-flash_attn-sm100-hybrid_on-k0-c64-small": ["absent"],
        "0.32.0-flash_attn-sm100-hybrid_on-k3-c64-small": ["absent"],
        "0.32.0-flash_attn-sm80-hybrid_on-k0-c64-small": ["absent"],
    }


@pytest.mark.parametrize("state", [State.INFRA, State.NOT_RUN, State.SKIPPED])
def test_a_cell_that_the_machine_kept_from_running_is_absent_and_says_why(state: State, tmp_path: Path) -> None:
    gone = only(K0, lambda row: ended(row, state, "no image"))
    _, made, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"], change=gone), waivers=WAIVERS)
    assert decided(made)[1] == {K0: ["absent"]}
    (gap,) = next(one for one in made.judgement.cells if one.cell.id == K0).gaps
    assert gap.detail == f"{state}: no image"


@pytest.mark.parametrize("state", [State.CRASH, State.FAIL, State.TIMEOUT, State.SUBSTITUTED, State.MISSING])
def test_a_verdict_that_is_not_accepted_is_a_gap_by_its_name(state: State, tmp_path: Path) -> None:
    broken = only(K0, lambda row: ended(row, state))
    _, made, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"], change=broken), waivers=WAIVERS)
    assert decided(made)[1] == {K0: [state.value]}


def test_a_verdict_in_a_file_is_not_believed_but_worked_out_from_the_state_and_the_known_issues(tmp_path: Path) -> None:
    lying = only(K0, lambda row: replace(ended(row, State.FAIL), verdict=Verdict.PASS))
    _, made, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"], change=lying), waivers=WAIVERS)
    assert decided(made)[1] == {K0: ["fail"]}


FP8 = "ValueError: no FP8 on this GPU"
EXPECT = "expect:\n  - {where: {backend: flash_attn}, refusal: no FP8 on, because: that GPU has no FP8}\nknown:\n"
refused = only(K0, lambda row: ended(row, State.REFUSED, FP8))


def test_a_refusal_counts_only_where_its_reason_is_named(tmp_path: Path) -> None:
    """A candidate whose model cannot be imported was refused in every cell, and the sign-off said GO."""
    for name, text, policy, gaps in (
        ("by nobody", signoffs.MATRIX, POLICY, ["refused!"]),
        ("by the matrix", signoffs.MATRIX.replace("known:\n", EXPECT), POLICY, []),
        ("by the policy", signoffs.MATRIX, POLICY.replace("refusals: expected", "refusals: no FP8 on"), []),
        ("otherwise", signoffs.MATRIX, POLICY.replace("refusals: expected", "refusals: no FP4 on"), ["refused!"]),
        ("by the matrix only", signoffs.MATRIX.replace("known:\n", EXPECT), "no refusals", ["refused"]),
    ):
        a_run = run(tmp_path / name, "a", devices=["sm100"], text=text, change=refused)
        policy = POLICY.replace("refusals: expected\n", "") if policy == "no refusals" else policy
        _, made, _ = sign(tmp_path, a_run, policy=policy, waivers=WAIVERS, out=f"{name}-b")
        assert decided(made)[1] == ({K0: gaps} if gaps else {}), name


def test_a_refusal_of_what_passed_in_the_run_before_is_red_whatever_its_reason(tmp_path: Path) -> None:
    text = signoffs.MATRIX.replace("known:\n", EXPECT)
    now = run(tmp_path, "a", devices=["sm100"], text=text, change=refused)
    before = run(tmp_path, "before", "vllm=0.31.0", text=text)
    gone = only(K0.replace("0.32.0", "0.31.0"), lambda row: ended(row, State.REFUSED, FP8))
    refused_before = run(tmp_path, "refused before", "vllm=0.31.0", text=text, change=gone)
    assert decided(sign(tmp_path, now, waivers=WAIVERS, out="alone")[1])[1] == {}
    assert decided(sign(tmp_path, now, waivers=WAIVERS, since=refused_before, out="as before")[1])[1] == {}
    folder, made, _ = sign(tmp_path, now, waivers=WAIVERS, since=before, out="since")
    assert decided(made) == ("NO-GO", {K0: ["regressed"]})
    page = (folder / "signoff.md").read_text()
    assert "| regressed<br>it passed in the run before, and is refused now |" in page
    assert f"fix it, or let an approver waive it: runner repro {K0}" in page


def test_an_old_result_is_stale_and_one_of_the_last_day_is_not(tmp_path: Path) -> None:
    for name, day, gaps in (
        ("old", "2026-11-17T11:59:59+00:00", ["stale"]),  # AT less 14 days and a second
        ("day", "2026-11-17T12:00:00+00:00", []),
        ("naught", "", ["stale"]),
        ("later", "2026-12-01T12:10:01+00:00", ["stale"]),  # AT and 10 minutes, more than clocks differ
        ("clock", "2026-12-01T12:10:00+00:00", []),
        ("words", "yesterday", ["stale"]),
    ):
        change = only(K0, lambda row, day=day: replace(row, ended_at=day))
        a_run = run(tmp_path / "runs" / name, "a", devices=["sm100"], change=change)
        _, made, _ = sign(tmp_path, a_run, waivers=WAIVERS, out=name)
        assert decided(made)[1] == ({K0: gaps} if gaps else {}), name


def test_results_of_another_environment_than_the_newest_do_not_count(tmp_path: Path) -> None:
    newest = only(K0, lambda row: environment(recipe_digest="bb22")(replace(row, ended_at="2026-11-30T13:00:00+00:00")))
    _, made, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"], change=newest), waivers=WAIVERS)
    decision, found = decided(made)
    assert decision == "NO-GO"
    assert K0 not in found
    assert set(map(tuple, found.values())) == {("environment",)}
    assert len(found) == 3  # the others of sm100: those of sm80 are emulated, in an environment of their own


def on_a_gpu(row: CellResult) -> CellResult:
    """As a container for a GPU says it: nothing of a recipe, but the image."""
    if row.evidence is not Evidence.DEVICE:
        return row
    return environment(recipe_digest="", image_digest="sha256:cc33")(row)


def test_an_image_made_by_hand_is_told_by_its_id(tmp_path: Path) -> None:
    _, made, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"], change=on_a_gpu), waivers=WAIVERS)
    assert decided(made)[1] == {}

    def with_another(row: CellResult) -> CellResult:
        return environment(recipe_digest="", image_digest="sha256:dd44")(row) if row.id == K0 else on_a_gpu(row)

    later = run(tmp_path / "runs", "b", devices=["sm100"], change=with_another)
    _, made, _ = sign(tmp_path, later, waivers=WAIVERS, out="other")
    assert set(map(tuple, decided(made)[1].values())) == {("environment",)}


def test_an_environment_that_the_policy_names_is_asked_for_and_one_that_is_not_said_never_is_the_same(
    tmp_path: Path,
) -> None:
    named = POLICY.replace("recipe_digest: same", "recipe_digest: [aa11, dd22]")
    silent = only(K0, environment(cases_digest=""))
    other = only(KNOWN, environment(recipe_digest="ee55"))
    for out, policy, change, found in (
        ("named", named, other, {KNOWN: ["environment"]}),
        ("silent", POLICY, silent, {K0: ["environment"]}),
    ):
        a_run = run(tmp_path / "runs" / out, "a", devices=["sm100"], change=change)
        _, made, _ = sign(tmp_path, a_run, policy=policy, waivers=WAIVERS, out=out)
        assert decided(made)[1] == found


def test_two_green_runs_are_two_runs_and_not_one_given_twice(tmp_path: Path) -> None:
    policy = POLICY.replace("evidence: device\n", "evidence: device\n    green_runs: 2\n")
    first = run(tmp_path, "a", devices=["sm100"])
    later = run(tmp_path, "b", "sm100", devices=["sm100"], change=lambda row: replace(row, ended_at=AT.isoformat()))
    copied = run(tmp_path, "c", "sm100", devices=["sm100"])

    def open_gaps(out: str, *runs: Path) -> dict[str, list[str]]:
        return decided(sign(tmp_path, *runs, policy=policy, waivers=WAIVERS, out=out)[1])[1]

    assert len(open_gaps("one", first)) == 4
    assert set(map(tuple, open_gaps("again", first).values())) == {("runs",)}
    assert open_gaps("two", first, later) == {}
    # the same results under another run's name are still one run
    assert len(open_gaps("copied", first, copied)) == 4
    with pytest.raises(UsageError, match="given twice"):
        open_gaps("twice", first, first)


def test_a_bad_result_is_not_hidden_by_a_good_one_nor_by_better_evidence(tmp_path: Path) -> None:
    good = run(tmp_path, "a", devices=["sm100"])
    failed = only(K0, lambda row: ended(row, State.FAIL))
    emulated = run(tmp_path, "b", "sm100", change=failed)
    old = run(tmp_path, "c", "sm100", change=lambda row: replace(failed(row), ended_at="2026-01-01T00:00:00+00:00"))
    assert decided(sign(tmp_path, good, emulated, waivers=WAIVERS, out="1")[1])[1] == {K0: ["fail"]}
    # what is too old says nothing either way
    assert decided(sign(tmp_path, good, old, waivers=WAIVERS, out="2")[1])[1] == {}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("who: release-manager", "who: intern", "the policy lists no such approver"),
        ("until: 2026-12-31", "until: 2026-11-30", "it expired on 2026-11-30"),
        ("until: 2026-12-31", "until: 2027-01-16", "release-manager may waive for 45 days, until 2027-01-15"),
        ("issues/49980", "issues/1", "these cells have no such gap: take it out"),
        ("cells: sm80", "cells: sm100", "these cells have no such gap: take it out"),
        ("what: xfail", "what: crash", "these cells have no such gap: take it out"),
    ],
)
def test_a_waiver_that_does_not_count_leaves_the_gap_and_says_why(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    assert WAIVERS.count(old) == 1
    a_run = run(tmp_path, "a", devices=["sm100"])
    _, made, _ = sign(tmp_path, a_run, waivers=WAIVERS.replace(old, new))
    decision, found = decided(made)
    assert decision == "NO-GO"
    assert set(map(tuple, found.values())) == {("xfail",)}
    assert len(found) == 2
    (standing,) = made.judgement.waivers
    assert (standing.covers, standing.refused) == (0, (said,))


def test_an_approver_waives_only_what_and_where_the_policy_says(tmp_path: Path) -> None:
    a_run = run(tmp_path, "a", devices=["sm100"])
    elsewhere = POLICY.replace("days: 45", "days: 45\n    cells: [sm100]")
    for out, policy, said in (
        ("what", POLICY.replace("[xfail, runs, evidence]", "[runs]"), "release-manager may not waive xfail"),
        ("where", elsewhere, "release-manager may waive only in sm100"),
    ):
        _, made, _ = sign(tmp_path, a_run, policy=policy, waivers=WAIVERS, out=out)
        assert decided(made)[0] == "NO-GO"
        assert made.judgement.waivers[0].refused == (said,)


def test_a_waiver_counts_on_its_last_day_and_not_the_day_after(tmp_path: Path) -> None:
    waivers = WAIVERS.replace("2026-12-31", "2026-12-02")
    a_run = run(tmp_path, "a", devices=["sm100"])
    for days, decision in ((1, "GO WITH WAIVERS"), (2, "NO-GO")):
        _, made, _ = sign(tmp_path, a_run, waivers=waivers, out=str(days), at=AT + timedelta(days=days))
        assert decided(made)[0] == decision


def test_a_waiver_may_reach_to_the_approvers_last_day(tmp_path: Path) -> None:
    """45 days after 2026-12-01 are 2027-01-15; a day more is in the list above."""
    waivers = WAIVERS.replace("2026-12-31", "2027-01-15")
    _, made, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"]), waivers=waivers)
    assert decided(made)[0] == "GO WITH WAIVERS"


def test_a_known_issue_that_has_expired_since_the_run_counts_no_more(tmp_path: Path) -> None:
    text = signoffs.MATRIX.replace("because: counts requests", "because: counts requests\n    until: 2026-11-30")
    _, made, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"], text=text), waivers=WAIVERS)
    assert set(map(tuple, decided(made)[1].values())) == {("overflow",)}
    said = f"paged_kv_indptr raised (emulated); known as {ISSUE}, which has expired"
    assert {gap.detail for one in made.judgement.cells for gap in one.open} == {said}


def test_a_cell_that_is_not_run_because_it_is_known_to_kill_is_absent_and_says_so(tmp_path: Path) -> None:
    entry = "{where: {arch: sm100, backend: flash_attn, spec_k: 0}, state: crash, issue: docs/x.md, because: x}"
    text = signoffs.MATRIX.replace("known:\n", f"known:\n  - {entry}\n")
    because = "docs/x.md is known to crash"
    kept = only(K0, lambda row: ended(row, State.SKIPPED, because))
    _, made, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"], text=text, change=kept), waivers=WAIVERS)
    assert decided(made)[1] == {K0: ["absent"]}


def test_a_policy_may_accept_known_issues_and_the_page_and_the_statement_say_so(tmp_path: Path) -> None:
    policy = POLICY.replace("accept: pass", "accept: [pass, xfail]")
    folder, made, _ = sign(tmp_path, run(tmp_path, "a", devices=["sm100"]), policy=policy)
    assert decided(made) == ("GO", {})
    page = (folder / "signoff.md").read_text()
    assert "Known issues that the policy accepts" in page
    assert f"<{ISSUE}> | 2 |" in page
    assert b'"result": "WARNED"' in made.files["statement.json"]
