"""junit.xml: read back by the library that CI systems' readers resemble, with the totals right."""

from dataclasses import replace

import pytest
from junitparser import JUnitXml
from junitparser.xunit2 import TestCase as Case

from runner.model import CaseResult, State, Verdict
from runner.reports import junit
from tests.unit import synthetic
from tests.unit.synthetic import ISSUE, VIRTUAL, cell, failed, overflowed


def cases_of(rows):
    (suite,) = JUnitXml.fromstring(junit.render(rows).encode())
    return [Case.fromelem(case._elem) for case in suite]


def test_a_cell_is_a_test_case_named_by_its_id():
    (case,) = cases_of([cell()])
    assert (case.name, case.classname) == ("0.32.0-flashinfer-sm80-hybrid_on-k0-c64-solo", "flashinfer.sm80")
    assert case.time == 0.05
    assert case.is_passed
    assert case.system_out.splitlines()[:3] == ["evidence: emulated", "state: pass", "environment.vllm: 0.32.0"]


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        *((v, "failure") for v in (Verdict.FAIL, Verdict.OVERFLOW, Verdict.CRASH, Verdict.TIMEOUT, Verdict.OOM)),
        (Verdict.XPASS, "failure"),
        (Verdict.UNEXPECTED, "failure"),
        *((v, "error") for v in (Verdict.INFRA, Verdict.MISSING, Verdict.SUBSTITUTED, Verdict.NOT_RUN)),
        *((v, "skipped") for v in (Verdict.REFUSED, Verdict.UNSUPPORTED, Verdict.SKIPPED, Verdict.XFAIL)),
    ],
)
def test_each_verdict_has_its_kind_and_type(verdict, kind):
    (case,) = cases_of([replace(cell(State.FAIL), verdict=verdict, reason="why", known=ISSUE)])
    (result,) = case.result
    assert result._tag == kind
    assert result.type == verdict.value
    known = f"known, fail: {ISSUE}; the known issue explains 1 of 1 case (emulated)"
    assert result.message == (known if verdict is Verdict.XFAIL else "why (emulated)")


def test_a_failure_says_where_in_vllm_it_was_raised():
    (case,) = cases_of([cell(State.FAIL, failed("test_a"), failed("test_b"))])
    where = "raised AssertionError at vllm/v1/attention/backends/flashinfer.py:812 in build: no room for 5 rows"
    assert case.result[0].message == f"AssertionError: no room for 5 rows; {where} (emulated)"
    assert f"test_b: fail, {where}" in case.result[0].text


def test_a_refusal_that_nobody_expects_is_a_failure_and_an_expected_one_says_why():
    row = cell(State.REFUSED, failed(state=State.REFUSED))
    bad, good = cases_of(
        [replace(row, verdict=Verdict.UNEXPECTED), replace(row, id="other", expected="vLLM has no such kernel")]
    )
    assert (bad.result[0]._tag, bad.result[0].type) == ("failure", "refused!")
    assert "flashinfer.py:812 in build" in bad.result[0].message
    assert f"{VIRTUAL}: refused, raised AssertionError" in bad.result[0].text
    assert good.result[0]._tag == "skipped"
    assert good.result[0].message.endswith("(expected: vLLM has no such kernel) (emulated)")


def test_a_known_issue_says_what_it_hides():
    row = cell(State.OVERFLOW, overflowed(), overflowed("test_b"), CaseResult(name="test_c", state=State.PASS))
    (case,) = cases_of([replace(row, verdict=Verdict.XFAIL, known=ISSUE)])
    hidden = "the known issue explains 1 of 3 cases; 1 passed; 1 could not judge: test_b"
    assert case.result[0].message == f"known, overflow: {ISSUE}; {hidden} (emulated)"


def test_a_failure_tells_the_numbers_and_the_repro_line():
    (case,) = cases_of([cell(State.OVERFLOW, overflowed())])
    text = case.result[0].text
    assert "paged_kv_indptr: required 6, allocated 2, raised" in text
    assert "runner repro 0.32.0-flashinfer-sm80" in text


def test_the_totals_of_the_suite_are_right():
    rows = [*synthetic.known(synthetic.results()), cell(State.FAIL, id="f"), cell(State.INFRA, id="i")]
    document = JUnitXml.fromstring(junit.render(rows).encode())
    (suite,) = document
    for one in (document, suite):
        assert (one.tests, one.failures, one.errors) == (3782, 1, 1)
    assert suite.skipped == 54 + 1080 + 432
    assert len(list(suite)) == 3782


def test_hostile_text_leaves_the_xml_legal():
    evil = "\x00\x1b[31m\ufffe]]><![CDATA[ <testcase name='x'/> &bogus; \ud800 \x85"
    case = CaseResult(name=evil, state=State.FAIL, message=evil)
    row = cell(State.FAIL, case, id=evil, axes={"backend": evil}, reason=evil, environment={"gpu": evil}, repro=evil)
    (read,) = cases_of([row])
    assert "\\x1b[31m" in read.name
    assert "<testcase name='x'/>" in read.result[0].message
    assert "\\x00" in read.result[0].text


def test_an_endless_message_is_cut():
    (read,) = cases_of([cell(State.FAIL, reason="x" * 1_000_000)])
    assert len(read.result[0].text) < 5000
    assert len(read.result[0].message) < 500
