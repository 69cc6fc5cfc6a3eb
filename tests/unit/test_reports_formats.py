"""Reports are valid by the schemas of their formats, and tools of others read the right numbers from them."""

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import xmlschema
from junitparser import JUnitXml
from prometheus_client.parser import text_string_to_metric_families

from runner.model import CaseResult, How, State, Verdict
from runner.reports import ctrf, files, junit, prometheus
from tests.unit import synthetic
from tests.unit.synthetic import ISSUE, cell, failed, overflow, overflowed

HERE = Path(__file__).parent / "formats"
PUBLISHED = os.environ.get("ATTNMATRIX_PUBLISHED_SCHEMAS", "")
published = pytest.mark.skipif(not PUBLISHED, reason="ATTNMATRIX_PUBLISHED_SCHEMAS names no folder")


def rows():
    """Every verdict, reruns, no times, no duration, a name of XML: whatever a format could choke on."""
    made = list(synthetic.known(synthetic.results()))[::7]
    for number, verdict in enumerate(Verdict):
        row = cell(State.FAIL, axes={"chunk": 4096 + number}, verdict=verdict, reason="<why> & what", known=ISSUE)
        made.append(replace(row, reruns=(State.PASS, State.FAIL), duration_s=number * 1e-7))
    made.append(cell(axes={"chunk": 1}, ended_at="", duration_s=0.0))
    made.append(cell(axes={"chunk": 2}, ended_at="yesterday", duration_s=float("nan")))
    return made


@pytest.mark.parametrize("folder", [HERE, pytest.param(Path(PUBLISHED), marks=published)], ids=["ours", "published"])
def test_ctrf_is_valid(folder):
    schema = json.loads((folder / "ctrf.schema.json").read_text())
    checker = jsonschema.validators.validator_for(schema)(schema, format_checker=jsonschema.FormatChecker())
    for report in (ctrf.render(rows(), title="a run"), ctrf.render([])):
        assert [error.message for error in checker.iter_errors(json.loads(report))] == []
    # and it is a schema that can say no
    assert list(checker.iter_errors({**json.loads(report), "reportFormat": "other"}))
    assert list(checker.iter_errors(json.loads(report.replace('"stop"', '"ended"'))))


@pytest.mark.parametrize(
    "schema",
    [HERE / "junit.xsd", pytest.param(Path(PUBLISHED) / "junit-10.xsd", marks=published)],
    ids=["ours", "published"],
)
def test_junit_is_valid(schema):
    checker = xmlschema.XMLSchema(str(schema))
    text = junit.render(rows())
    for report in (text, junit.render([])):
        assert [error.reason for error in checker.iter_errors(report)] == []
    assert not checker.is_valid(text.replace("<system-out>", "<properties/><system-out>", 1))
    assert not checker.is_valid(text.replace("<testsuite ", "<testsuite more='1' ", 1))


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (Verdict.PASS, "passed"),
        *((v, "failed") for v in (Verdict.OVERFLOW, Verdict.FAIL, Verdict.CRASH, Verdict.XPASS)),
        (Verdict.UNEXPECTED, "failed"),
        *((v, "failed") for v in (Verdict.INFRA, Verdict.MISSING, Verdict.SUBSTITUTED)),
        *((v, "other") for v in (Verdict.XFAIL, Verdict.FLAKY)),
        *((v, "skipped") for v in (Verdict.REFUSED, Verdict.UNSUPPORTED, Verdict.SKIPPED)),
        (Verdict.NOT_RUN, "pending"),
    ],
)
def test_each_verdict_has_a_status_of_ctrf(verdict, status):
    (test,) = json.loads(ctrf.render([replace(cell(), verdict=verdict)]))["results"]["tests"]
    assert (test["status"], test["rawStatus"]) == (status, verdict.value)


def test_ctrf_says_what_a_person_has_to_know():
    row = cell(State.OVERFLOW, overflowed(synthetic.MASK, overflow(How.SILENT, buffer="mask")))
    report = json.loads(ctrf.render([row, cell(axes={"spec_k": 1}, ended_at="2026-11-29T15:05:00+00:00")]))
    assert report["results"]["summary"] == {
        "tests": 2,
        "passed": 1,
        "failed": 1,
        "skipped": 0,
        "pending": 0,
        "other": 0,
        "flaky": 0,
        # 15:04:00 less 50 ms, and 15:05:00, in milliseconds since 1970: 1,795,964,640 s is 15:04 on that day
        "start": 1_795_964_640_000 - 50,
        "stop": 1_795_964_700_000,
    }
    test = report["results"]["tests"][0]
    assert test["name"] == row.id
    assert test["labels"] == {**row.axes, "evidence": "emulated", "state": "overflow"}
    assert test["tags"] == ["emulated"]
    assert test["message"].endswith("(emulated)")
    assert test["extra"]["overflow"] == [{"buffer": "mask", "required": 6, "allocated": 2, "how": "silent"}]
    assert test["extra"]["repro"] == row.repro


def test_ctrf_says_where_in_vllm_it_was_raised_and_why_a_refusal_is_expected():
    bad = cell(State.FAIL, failed("test_a"), failed("test_b"))
    refused = cell(State.REFUSED, axes={"spec_k": 1}, reason="why", expected="vLLM has no such kernel")
    tests = json.loads(ctrf.render([bad, refused]))["results"]["tests"]
    assert "raised AssertionError at vllm/v1/attention/backends/flashinfer.py:812 in build" in tests[0]["message"]
    assert tests[0]["trace"].count("flashinfer.py:812 in build") == 2
    assert tests[1]["message"] == "why (expected: vLLM has no such kernel) (emulated)"
    assert tests[1]["extra"]["expected"] == "vLLM has no such kernel"


def test_ctrf_and_prometheus_say_what_a_known_issue_hides():
    row = cell(State.OVERFLOW, overflowed(), overflowed("test_b"), overflowed("test_c"))
    row = replace(row, verdict=Verdict.XFAIL, known=ISSUE)
    (test,) = json.loads(ctrf.render([row]))["results"]["tests"]
    assert "1 of 3 cases; 2 could not judge: test_b, test_c" in test["message"]
    read = {one.name: one for one in text_string_to_metric_families(prometheus.render([row, cell()], exit_code=0))}
    assert [sample.value for sample in read["attnmatrix_unjudged_cases"].samples] == [2]


def test_prometheus_counts_a_refusal_that_nobody_expects_apart():
    row = replace(cell(State.REFUSED), verdict=Verdict.UNEXPECTED)
    assert 'evidence="emulated",verdict="refused!"} 1\n' in prometheus.render([row, cell()], exit_code=1)


def test_ctrf_counts_reruns_and_tells_a_flake():
    row = cell(State.FAIL, CaseResult(name="t", state=State.FAIL, message="m"), reruns=(State.PASS, State.FAIL))
    report = json.loads(ctrf.render([row]))
    (test,) = report["results"]["tests"]
    assert (test["retries"], test["flaky"], report["results"]["summary"]["flaky"]) == (2, True, 1)
    assert [one["status"] for one in test["retryAttempts"]] == ["failed", "passed", "failed"]


def test_prometheus_counts_each_cell_once():
    made = list(synthetic.known(synthetic.results()))
    read = {family.name: family for family in text_string_to_metric_families(prometheus.render(made, exit_code=1))}
    assert all(family.type == "gauge" and family.documentation for family in read.values())
    counts = Counter()
    for sample in read["attnmatrix_cells"].samples:
        key = tuple(sample.labels[name] for name in ("vllm", "backend", "arch", "evidence", "verdict"))
        assert key not in counts
        counts[key] = sample.value
    expected = Counter(
        (row.axes["vllm"], row.axes["backend"], row.axes["arch"], row.evidence, row.verdict) for row in made
    )
    assert counts == expected
    overflows = sum(sample.value for sample in read["attnmatrix_overflows"].samples)
    assert overflows == sum(len(row.overflow) for row in made) > 0
    seconds = sum(sample.value for sample in read["attnmatrix_cell_seconds"].samples)
    assert seconds == pytest.approx(0.05 * len(made))
    assert [sample.value for sample in read["attnmatrix_exit_code"].samples] == [1]
    # 2026-11-29T15:04:00Z
    assert [sample.value for sample in read["attnmatrix_last_cell_timestamp_seconds"].samples] == [1_795_964_640]


def test_prometheus_labels_come_back_as_they_were():
    odd = 'a "quoted" \\ back\\nslash'
    text = prometheus.render([cell(axes={"backend": odd})], exit_code=0)
    (family, *_) = text_string_to_metric_families(text)
    assert family.samples[0].labels["backend"] == odd


def test_a_run_directory_has_all_of_them(tmp_path):
    made = [cell(), cell(State.FAIL, axes={"spec_k": 1})]
    files.write(tmp_path, made, exit_code=1, title="a run")
    assert {path.name for path in tmp_path.iterdir()} >= {
        "results.json",
        "report.md",
        "junit.xml",
        "ctrf.json",
        "metrics.prom",
    }
    assert len(json.loads((tmp_path / "ctrf.json").read_text())["results"]["tests"]) == 2
    assert len(list(next(iter(JUnitXml.fromfile(str(tmp_path / "junit.xml")))))) == 2


def test_the_same_results_give_the_same_bytes():
    for render in (ctrf.render, junit.render, lambda made: prometheus.render(made, exit_code=0)):
        assert render(rows()) == render(rows())
