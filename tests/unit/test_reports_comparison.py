"""What `runner compare` prints: the worst first, in few patterns, no claim of a device, nothing lost in a cut."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from runner import cli, results
from runner.compare import compare
from runner.model import CaseResult, Evidence, How, State, Verdict
from runner.reports import comparison
from tests.unit import synthetic
from tests.unit.synthetic import MASK, cell, overflow, overflowed

KS, ARCHS = (0, 1, 2, 3, 5, 7), ("sm90", "sm100", "sm120")
SHORT = overflowed(MASK, overflow(How.SHORT, buffer="mask"))
RAISED = overflowed(synthetic.INDPTR, overflow(How.RAISED, buffer="indptr"))


CASES = (synthetic.VIRTUAL, MASK, synthetic.INDPTR, "test_a")


def release(vllm, of):
    """A cell for each k and arch, by what `of` says of it: a state and its cases; all others of CASES pass."""
    made = []
    for k in KS:
        for arch in ARCHS:
            state, *cases = of(k, arch)
            there = {case.name for case in cases}
            cases += [CaseResult(name=name, state=State.PASS) for name in CASES if name not in there]
            made.append(cell(state, *cases, axes={"vllm": vllm, "spec_k": k, "arch": arch}))
    return made


OLD = release("0.27.1", lambda k, arch: (State.OVERFLOW, RAISED) if arch == "sm120" else (State.PASS,))
NEW = release(
    "0.28.0",
    lambda k, arch: (
        (State.OVERFLOW, RAISED, SHORT)
        if arch == "sm120" and k > 0
        else (State.FAIL, CaseResult(name="test_a", state=State.FAIL, message="wrong"))
        if arch == "sm90" and k == 3
        else (State.OVERFLOW, RAISED)
        if arch == "sm120"
        else (State.PASS,)
    ),
)


def shown(before, after, width=100):
    console = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False)
    comparison.show(console, compare(before, after), title="a → b")
    return console.file.getvalue()


def test_a_comparison_reads_as_intended():
    """18 cells: sm90 has one new failure; sm120 has a mask beside for the five k over 0, and k0 as before."""
    assert shown(OLD, NEW) == (
        """a → b
18 cells judged = 1 regressed + 5 changed + 1 still + 11 same; 0 judged on neither side; known issues left aside
verdicts before: 6 overflow + 12 pass
verdicts after: 6 overflow + 1 fail + 11 pass
6 cells got worse
nothing was shown on a GPU: 18 cells emulated (vLLM's own Python on a CPU that presents the arch; no GPU kernel ran)

regressed · 1 cell · emulated
  before    pass
  after     fail in test_a
  where     sm90 k3
  repro     runner repro 0.28.0-flashinfer-sm90-hybrid_on-k3-c64-solo

changed, worse · 5 cells · emulated
  before    overflow raised in indptr
  after     overflow short in mask; overflow raised in indptr
  worse     silent now: no exception shows it any more, which is worse than a plain failure
  where     sm120 k>=1
  repro     runner repro 0.28.0-flashinfer-sm120-hybrid_on-k1-c64-solo

still · 1 cell · emulated
  both      overflow raised in indptr
  where     sm120 k0
  repro     runner repro 0.28.0-flashinfer-sm120-hybrid_on-k0-c64-solo

exit 1: something got worse
"""
    )


def test_the_way_back_is_a_fix():
    text = shown(NEW, OLD)
    assert "changed · 5 cells · emulated" in text
    assert "fixed · 1 cell · emulated" in text
    assert "none got worse" in text
    assert "worse  " not in text


def test_what_known_issues_made_of_a_state_is_said():
    known = [replace(row, verdict=Verdict.XFAIL) if row.state is State.OVERFLOW else row for row in OLD]
    text = shown(known, NEW)
    assert "verdict   xfail → overflow: 5 cells" in text
    assert "regressed · 1 cell" in text


def test_evidence_that_differs_stands_apart():
    on_gpu = [replace(row, evidence=Evidence.DEVICE) for row in OLD]
    text = shown(on_gpu, NEW)
    assert "18 cells with different evidence on the two sides, no claim about either: 12 say the same, 6 do not" in text
    assert "only emulated on one side, worse · 1 cell · device → emulated" in text
    assert "regressed" not in text


def test_two_devices_are_spoken_of_without_reserve():
    old, new = ([replace(row, evidence=Evidence.DEVICE) for row in side] for side in (OLD, NEW))
    assert "no claim" not in shown(old, new)


def test_cells_lost_to_the_machine_are_no_silence():
    lost = [replace(row, state=State.INFRA, verdict=Verdict.INFRA, reason="no image", cases=()) for row in OLD[:4]]
    text = shown(OLD, [*lost, *OLD[4:]])
    assert "4 cells judged before could not be judged again: machine or harness trouble" in text
    assert "reason    no image" in text
    assert "exit 3: nothing got worse, but cells were lost" in text


def test_a_verdict_that_is_not_given_any_more_is_told_with_its_reason():
    """XQA given a bool for its mask: the case that reads the mask trips, and all others pass as before."""
    tripped = CaseResult(
        name=MASK, state=State.MISSING, message="AttributeError: 'bool' object has no attribute 'shape'"
    )
    others = tuple(case for case in NEW[0].cases if case.name != MASK)
    row = replace(cell(State.MISSING, tripped, axes={**NEW[0].axes}), cases=(*others, tripped))
    text = shown(OLD[:1], [row])
    assert "1 cell got worse\n1 cell of these passed a case that gives no verdict now\n" in text
    assert (
        "gone, worse · 1 cell · emulated\n"
        "  before    pass\n"
        f"  after     missing in {MASK}\n"
        "  reason    AttributeError: 'bool' object has no attribute 'shape'\n"
    ) in text
    assert "exit 1: something got worse" in text
    sides = []
    for one in (OLD[0], row):
        cases = (*(case for case in one.cases if case.name != RAISED.name), RAISED)
        sides.append(replace(one, state=State.OVERFLOW, reason="too short", cases=cases, overflow=RAISED.overflow))
    text = shown(sides[:1], sides[1:], width=200)
    assert f"  after     overflow raised in indptr; missing in {MASK}\n" in text, "beside trouble of both sides"
    assert "  reason    AttributeError: 'bool' object has no attribute 'shape'\n" in text


def test_what_changed_stands_before_what_one_side_alone_judged():
    before = [row for row in NEW if row.axes["arch"] == "sm120"] + [row for row in OLD if row.axes["arch"] != "sm120"]
    before = [replace(row, axes={**row.axes, "vllm": "0.28.0"}) for row in before]
    after = [replace(row, axes={**row.axes, "vllm": "0.28.0"}) for row in OLD]
    after = [
        row if row.axes["arch"] == "sm120" else replace(row, state=State.INFRA, verdict=Verdict.INFRA, cases=())
        for row in after
    ]
    text = shown(before, after)
    assert text.index("changed · 5 cells") < text.index("gone · 12 cells")
    assert "exit 3" in text


def test_new_cells_with_trouble_are_counted_and_not_called_worse():
    text = shown([row for row in OLD if row.axes["arch"] != "sm120"], OLD)
    assert "6 new cells with trouble: not known to be worse, for nothing was known before" in text
    assert "exit 0" in text


def test_a_refusal_keeps_its_reason():
    refused = [
        replace(row, state=State.REFUSED, verdict=Verdict.REFUSED, reason="no fp8 here", cases=()) for row in OLD
    ]
    text = shown([row for row in OLD if row.state is State.PASS], refused)
    assert "reason    no fp8 here" in text
    assert "exit 1" in text


def test_other_cases_on_one_side_are_told():
    other = [replace(row, environment={**row.environment, "cases_digest": "aa"}) for row in OLD]
    more = [replace(row, environment={**row.environment, "cases_digest": "bb"}) for row in NEW]
    assert "18 cells judged by different cases on the two sides" in shown(other, more)
    assert "different cases" not in shown(other, NEW)


def test_a_cell_that_comes_and_goes_is_told():
    flaky = [replace(row, reruns=(State.FAIL, State.PASS)) if row.state is State.FAIL else row for row in NEW]
    assert "flaky     1 cell seen both ways at one revision" in shown(OLD, flaky)
    assert "flaky" not in shown(OLD, [replace(row, reruns=(State.FAIL,)) for row in NEW])


def test_runs_of_different_matrices_can_be_shown():
    """An axis that only one of them has: no cell is the same, and that is said."""
    other = [replace(row, axes={**row.axes, "colour": "red"}) for row in NEW]
    text = shown(OLD, other)
    assert "gone" in text
    assert "exit 5" in text


def test_json_adds_up():
    found = json.loads(comparison.to_json(compare(OLD, NEW)))
    assert sum(found["counts"].values()) == 18
    assert (found["worse"], found["exit_code"], found["sides"]) == (6, 1, ["0.27.1", "0.28.0"])
    assert [(group["kind"], group["cells"], group["patterns"]) for group in found["groups"]] == [
        ("regressed", 1, ["sm90 k3"]),
        ("changed", 5, ["sm120 k>=1"]),
        ("still", 1, ["sm120 k0"]),
    ]
    assert len(found["changes"]) == 7
    assert found["changes"][0]["before"]["id"].startswith("0.27.1-")


@pytest.fixture
def runs(tmp_path):
    for name, rows in (("old", OLD), ("new", NEW), ("both", OLD + NEW)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(results.to_json(rows))
    return tmp_path


def test_two_runs_and_two_releases_of_one_run_say_the_same(runs, capsys):
    assert cli.main(["compare", str(runs / "old"), str(runs / "new")]) == 1
    two = capsys.readouterr().out.split("\n", 1)
    assert cli.main(["compare", "0.27.1", "0.28.0", "--in", str(runs / "both")]) == 1
    one = capsys.readouterr().out.split("\n", 1)
    assert two[1] == one[1]
    assert one[0] == "0.27.1 → 0.28.0"
    assert two[0].endswith("(0.27.1 → 0.28.0)")
    command = ["compare", "0.27.1", "0.28.0", "--in", str(runs / "old"), "--in", str(runs / "new")]
    assert cli.main(command) == 1


def test_each_form_exits_alike(runs, capsys):
    for form, start in (("--json", "{"), ("--markdown", "## ")):
        assert cli.main(["compare", str(runs / "old"), str(runs / "new"), form]) == 1
        assert capsys.readouterr().out.startswith(start)
    assert cli.main(["compare", str(runs / "old"), str(runs / "old")]) == 0


def test_another_axis_can_be_the_one_that_differs(runs, capsys):
    assert cli.main(["compare", "sm100", "sm120", "--along", "arch", "--in", str(runs / "old")]) == 1
    assert "regressed · 6 cells" in capsys.readouterr().out
    assert cli.main(["compare", "0", "7", "--along", "spec_k", "--in", str(runs / "old")]) == 0


def test_a_filter_chooses_on_both_sides(runs, capsys):
    command = ["compare", str(runs / "old"), str(runs / "new"), "--filter"]
    assert cli.main([*command, "sm100"]) == 0
    assert "6 cells judged = 6 same" in capsys.readouterr().out
    assert cli.main([*command, "sm120,b200", "--filter", "spec_k>=3"]) == 1
    assert "6 cells judged = 3 changed + 3 same" in capsys.readouterr().out
    assert cli.main([*command, "sm101"]) == 5
    assert "did you mean 'sm120' or 'sm100'" in capsys.readouterr().err
    assert cli.main([*command, "sm90", "--filter", "sm100"]) == 5
    assert cli.main([*command, "spec_k>"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}/old", "{}/none"], "none: no such run directory"),
        (["0.27.1", "0.28.0"], "runner compare 0.27.1 0.28.0 --in RUN"),
        (["0.27.1", "0.28.1", "--in", "{}/both"], "no results with vllm 0.28.1, did you mean '0.28.0'"),
        (["0.27.1", "0.27.1", "--in", "{}/both"], "0.27.1 twice"),
        (["a", "b", "--in", "{}/none"], "no such file"),
        (["a", "b", "--in", "{}/both", "--along", "arhc"], "did you mean 'arch'?"),
        (["{}/old", "{}/new", "--json", "--markdown"], "give one of them"),
    ],
)
def test_what_cannot_be_compared_is_told_with_what_to_do(runs, capsys, arguments, message):
    assert cli.main(["compare", *(one.format(runs) for one in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_nothing_comparable_is_exit_5(runs, capsys):
    (runs / "none").mkdir()
    lost = [replace(row, state=State.NOT_RUN, verdict=Verdict.NOT_RUN, cases=(), overflow=()) for row in NEW]
    (runs / "none" / "results.json").write_text(results.to_json(lost))
    assert cli.main(["compare", str(runs / "old"), str(runs / "none")]) == 5
    assert "nothing is comparable" in capsys.readouterr().out
