"""Hostile text in any field of a result does nothing in any report that is text."""

import io
import json
import re
from dataclasses import replace

import pytest
from junitparser import JUnitXml
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from runner.compare import compare
from runner.model import How, State, Verdict
from runner.reports import comparison, ctrf, junit, markdown, overflows, prometheus, pull_request, terminal
from tests.unit.hostile import KEY, STEERING, TEXTS, places, put
from tests.unit.synthetic import ISSUE, MASK, cause, cell, failed, overflow, overflowed

PLACES = list(places())
ROOM = 200_000
"""Characters of a report on a few cells, whatever they say."""


def rows(place, text):
    """The text in a failure, a known one, a refusal, a pass and more, wherever the place is there."""
    base = [
        cell(State.OVERFLOW, overflowed(MASK, overflow(How.SILENT)), failed("test_a"), failed("test_b")),
        replace(
            cell(State.OVERFLOW, overflowed(MASK, cause=cause()), overflowed("test_c"), axes={"spec_k": 1}),
            verdict=Verdict.XFAIL,
            known=ISSUE,
        ),
        cell(State.REFUSED, axes={"spec_k": 2}, expected="a rule"),
        replace(cell(State.REFUSED, failed(state=State.REFUSED), axes={"spec_k": 4}), verdict=Verdict.UNEXPECTED),
        cell(State.PASS, axes={"spec_k": 3}),
        cell(State.INFRA, axes={"spec_k": 5}, reason="no image"),
        replace(cell(axes={"spec_k": 7}), verdict=Verdict.XPASS, known=ISSUE),
    ]
    made = [put(row, place, text) for row in base]
    assert made[0] != base[0]
    # ids stay different, as those of any run are
    return [replace(row, id=f"{row.id} {number}") if place == ("id",) else row for number, row in enumerate(made)]


@pytest.fixture(params=[(place, name) for place in PLACES for name in TEXTS], ids=lambda p: f"{'.'.join(p[0])}-{p[1]}")
def hostile(request):
    place, name = request.param
    if place[0] == "axes" and place[-1] != KEY:
        return [replace(row, axes={**row.axes, "spec_k": k}) for k, row in enumerate(rows(place, TEXTS[name]))]
    return rows(place, TEXTS[name])


def test_the_places_are_those_of_a_result():
    """By hand, so that a way of writing a type that the search does not know is noticed."""
    assert {".".join(place) for place in PLACES} >= {
        "id",
        "axes.(key)",
        "axes.(value)",
        "cases.(item).name",
        "cases.(item).message",
        "cases.(item).overflow.(item).buffer",
        "cases.(item).cause.exception",
        "cases.(item).cause.words",
        "cases.(item).cause.file",
        "cases.(item).cause.function",
        "expected",
        "overflow.(item).buffer",
        "reason",
        "repro",
        "known",
        "environment.(key)",
        "environment.(value)",
        "resolved.(key)",
        "resolved.(value)",
        "ended_at",
    }


def on_screen(print_to, width=100):
    console = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False)
    print_to(console)
    return console.file.getvalue()


def assert_harmless(text):
    assert not set(text) & STEERING
    assert len(text) < ROOM
    text.encode("utf-8")


def assert_markdown_harmless(text):
    """As CommonMark reads it, text of a result is code, and nothing but the link of a known issue is a link."""
    assert_harmless(text)
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text):
        for one in (token, *(token.children or ())):
            assert one.type not in {"html_block", "html_inline", "image"} or one.content == "<br>", one.content
            assert "href" not in one.attrs or one.attrs["href"] == ISSUE
            if one.type == "text":
                assert "evil" not in one.content


def test_a_terminal_shows_it(hostile):
    assert_harmless(
        on_screen(lambda console: terminal.show(console, hostile, exit_code=1, title="run", where="runs/1"))
    )


def test_markdown_quotes_it(hostile):
    assert_markdown_harmless(markdown.render(hostile, exit_code=1, title="run"))


def test_the_tables_of_overflows_quote_it(hostile):
    assert_markdown_harmless(overflows.render(hostile))


def test_junit_holds_it(hostile):
    text = junit.render(hostile)
    assert_harmless(text)
    (suite,) = JUnitXml.fromstring(text.encode())
    assert len(list(suite)) == len(hostile)
    assert len(re.findall("<testcase ", text)) == len(hostile)


def strings(value):
    if isinstance(value, dict):
        return [one for item in value.items() for one in strings(list(item))]
    if isinstance(value, list):
        return [one for item in value for one in strings(item)]
    return [value] if isinstance(value, str) else []


def test_ctrf_holds_it(hostile):
    text = ctrf.render(hostile, title="run")
    assert_harmless(text)
    read = json.loads(text)
    assert len(read["results"]["tests"]) == len(hostile)
    for one in strings(read):
        assert_harmless(one)


def test_prometheus_reads_no_metric_of_its_own(hostile):
    text = prometheus.render(hostile, exit_code=1)
    assert_harmless(text)
    families = list(text_string_to_metric_families(text))
    assert {sample.name for family in families for sample in family.samples} <= {
        "attnmatrix_cells",
        "attnmatrix_overflows",
        "attnmatrix_unjudged_cases",
        "attnmatrix_cell_seconds",
        "attnmatrix_exit_code",
        "attnmatrix_last_cell_timestamp_seconds",
    }
    cells = [sample for family in families for sample in family.samples if sample.name == "attnmatrix_cells"]
    assert sum(sample.value for sample in cells) == len(hostile)


def test_a_comparison_quotes_it(hostile):
    before = [replace(row, state=State.PASS, verdict=Verdict.PASS, cases=(), overflow=()) for row in hostile]
    found = compare(before, hostile)
    assert_harmless(on_screen(lambda console: comparison.show(console, found, title="a → b")))
    assert_markdown_harmless(pull_request.markdown(found, title="a → b"))
    raw = comparison.to_json(found)  # data, as results.json is: whole, and escaped as JSON is
    assert not set(raw) & STEERING
    assert json.loads(raw)["counts"]["regressed"] > 0
