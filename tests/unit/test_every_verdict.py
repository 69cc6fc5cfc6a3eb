"""No report forgets a verdict: whatever a cell ended as has a word, a mark and a place in each of them."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from junitparser import JUnitXml

from runner import outcome
from runner.ci import annotations, gate
from runner.ci.gather import Gathered
from runner.ci.jobs import Side
from runner.model import CellResult, Fault, State, Verdict
from runner.reports import ctrf, heatmap, html, junit, markdown, prometheus, summary, terminal
from runner.reports.grouping import groups
from runner.signoff import gaps
from tests.unit.synthetic import ISSUE, cell

STYLE = Path(html.__file__).with_name("page.css").read_text()
STATE = {
    Verdict.XPASS: State.PASS,
    Verdict.XFAIL: State.FAIL,
    Verdict.FLAKY: State.FAIL,
    Verdict.UNEXPECTED: State.REFUSED,
}


@pytest.fixture(params=Verdict, ids=lambda verdict: verdict.value)
def row(request: pytest.FixtureRequest) -> CellResult:
    """A cell with this verdict, in a state that can have it."""
    verdict = request.param
    state = STATE.get(verdict) or State(verdict.value)
    known = ISSUE if verdict in {Verdict.XFAIL, Verdict.FLAKY, Verdict.XPASS} else ""
    return replace(cell(state), verdict=verdict, reason="so it is", known=known)


CODES = {Fault.NONE: 0, Fault.PRODUCT: 1, Fault.HARNESS: 3, Fault.MACHINE: 3}


def test_it_has_an_exit_code_by_whose_fault_it_is(row: CellResult) -> None:
    wanted = 4 if row.verdict is Verdict.NOT_RUN else CODES[row.verdict.fault]
    assert outcome.exit_code([Verdict.PASS, row.verdict]) == wanted
    assert gate.code(Gathered(came=(), rows={Side.HOSTED: (row,)}), {}) == wanted


def test_it_has_a_mark_a_style_and_a_place_in_the_totals(row: CellResult) -> None:
    assert len(heatmap.GLYPHS[row.verdict]) == 1
    assert terminal.STYLES[row.verdict]
    assert summary.totals_line([row]) == f"1 cell = 1 {row.verdict.value}"


def test_the_page_has_a_style_for_it(row: CellResult) -> None:
    name = re.escape(row.verdict.value).replace("!", "\\\\!")
    assert re.search(rf"\.v-{name}[ ,{{]", STYLE), f"page.css has no class v-{row.verdict.value}"


def test_each_machine_readable_report_has_it(row: CellResult) -> None:
    (test,) = json.loads(ctrf.render([row]))["results"]["tests"]
    assert test["rawStatus"] == row.verdict.value
    failed = row.verdict.fault is not Fault.NONE and row.verdict is not Verdict.NOT_RUN
    assert (test["status"] == "failed") == failed
    (case,) = next(iter(JUnitXml.fromstring(junit.render([row]).encode())))
    kinds = {Fault.PRODUCT: "failure", Fault.HARNESS: "error", Fault.MACHINE: "error", Fault.NONE: "skipped"}
    assert [kind._tag for kind in case.result] == ([] if row.verdict is Verdict.PASS else [kinds[row.verdict.fault]])
    assert f'verdict="{row.verdict.value}"' in prometheus.render([row], exit_code=0)


def test_what_is_bad_is_a_finding_that_a_person_is_shown(row: CellResult) -> None:
    """In the groups, which all reports for people are made of; other verdicts that owe a reason have it below."""
    if row.verdict.fault is Fault.NONE:
        assert (row.verdict in summary.EXPLAINED) == bool(summary.reasons([row]))
        return
    (group,) = groups([row])
    assert group.verdict is row.verdict
    assert row.verdict.value in markdown.render([row], exit_code=1)
    kind = "error" if row.verdict.fault is Fault.PRODUCT else "warning"
    assert any(line.startswith(f"::{kind} title={row.verdict.value}") for line in annotations.of_run([row]))


def test_a_sign_off_can_name_it(row: CellResult) -> None:
    assert (row.verdict.value in gaps.NAMES) == (row.verdict is not Verdict.PASS)
