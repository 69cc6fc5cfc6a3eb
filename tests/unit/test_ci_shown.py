"""What GitHub shows of a run: annotations, and the one job summary."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from runner.ci import annotations, page
from runner.ci.gather import Came, Gathered
from runner.ci.jobs import Job, Side
from runner.model import CaseResult, Evidence, State, Verdict
from tests.unit.synthetic import cell, known, results

MIB = 1 << 20


def gathered(device=(), hosted=()) -> Gathered:
    came = [
        Came(
            job=Job(name=name, side=side, runs_on=(name,)),
            planned=len(rows),
            attempt=1,
            arrived=len(rows),
            skipped=sum(row.state is State.SKIPPED for row in rows),
            because=next((row.reason for row in rows if row.state is State.SKIPPED), ""),
        )
        for name, side, rows in (("sm90", Side.DEVICE, device), ("hosted", Side.HOSTED, hosted))
        if rows
    ]
    rows = {side: tuple(rows) for side, rows in ((Side.DEVICE, device), (Side.HOSTED, hosted)) if rows}
    return Gathered(came=tuple(came), rows=rows)


def on_device(rows):
    return [replace(row, evidence=Evidence.DEVICE) for row in rows]


def each_its_own_way(rows):
    """3,780 cells, each with a failure that no other has: nothing groups."""
    for number, row in enumerate(rows):
        name = "test_" + "".join(chr(97 + int(digit)) for digit in f"{number:05}")
        message = f"E   {name} " + "x" * 300
        yield replace(
            row, state=State.FAIL, verdict=Verdict.FAIL, reason=message, repro=f"runner repro {row.id}",
            cases=(CaseResult(name=name, state=State.FAIL, message=message),), overflow=(),
        )  # fmt: skip


def test_at_most_ten_and_the_worst_first() -> None:
    rows = [*each_its_own_way(list(results())[:30])]
    rows.append(cell(State.CRASH, axes={"spec_k": 7, "chunk": 8192, "load": "server"}, cases=(), reason="killed"))
    told = annotations.annotations(gathered(hosted=rows), {})
    assert len(told) == 10
    assert told[0].startswith("::error title=crash · ")
    assert told[-1] == "::warning title=and more::22 others: the job summary has all of them"  # 31 groups, 9 shown


def test_product_trouble_comes_before_that_of_machines_and_before_missing_evidence() -> None:
    fail = cell(State.FAIL, CaseResult(name="test_a", state=State.FAIL, message="no"))
    infra = cell(State.INFRA, axes={"spec_k": 1}, cases=(), reason="no image")
    absent = cell(State.SKIPPED, axes={"arch": "sm90"}, cases=(), reason="offline: lab1")
    told = annotations.annotations(gathered(device=on_device([absent]), hosted=[infra, fail]), {})
    assert [line.split(" ")[0] for line in told] == ["::error", "::warning", "::warning"]
    assert "title=fail" in told[0]
    assert "title=infra" in told[1]
    assert "offline: lab1" in told[2]


def test_what_is_known_is_no_annotation() -> None:
    assert annotations.annotations(gathered(hosted=list(known(results()))), {}) == []


def test_an_annotation_is_one_line_whatever_is_in_it() -> None:
    nasty = "a::b%0A\r\n::error::pwned,x=1\x1b[31m"
    made = annotations.command("error", nasty, nasty)
    assert "\n" not in made
    assert "\r" not in made
    title, message = re.fullmatch(r"::error title=(.*?)::(.*)", made).groups()
    assert ":" not in title
    assert "," not in title
    assert message == "a::b%250A%0D%0A::error::pwned,x=1\x1b[31m"  # as GitHub documents: %, CR and LF escaped


def test_between_two_lines_nothing_is_a_command() -> None:
    (begin, end), (other, _) = annotations.muted(), annotations.muted()
    token = begin.removeprefix("::stop-commands::")
    assert end == f"::{token}::"
    assert len(token) >= 32
    assert begin != other


@pytest.mark.parametrize("both", [True, False])
def test_the_summary_of_the_worst_run_of_3780_cells_fits(both: bool) -> None:
    rows = list(each_its_own_way(results()))
    text = page.render(gathered(device=on_device(rows) if both else (), hosted=rows), {}, title="nightly")
    assert MIB // 2 < len(text.encode()) < MIB
    assert "left out to keep this page short" in text
    assert text.count("# Attention matrix") == 2 + both


def test_the_most_important_comes_first() -> None:
    device = on_device([cell(State.PASS), cell(State.SKIPPED, axes={"arch": "sm90"}, cases=(), reason="offline: lab1")])
    text = page.render(gathered(device=device, hosted=list(results())), {}, title="nightly")
    lines = [line for line in text.splitlines() if line]
    assert lines[0] == "# Attention matrix: `nightly`"
    assert lines[1].startswith("**exit 1: product trouble")
    assert lines[2] == "- `missing evidence: sm90 on a GPU, 1 cell: offline: lab1`"
    assert text.index("`without a GPU`") < text.index("`on GPUs`"), "the side with trouble comes first"
    assert text.index("## Unexpected") < text.index("## Heat map")


def test_a_plan_that_failed_is_all_that_is_said() -> None:
    from runner.ci import gate

    text = page.render(Gathered(came=()), gate.needs('{"plan": {"result": "failure"}}'))
    assert "**exit 3: only machine or harness trouble**" in text
    assert "- `the job plan ended as failure`" in text


HOSTILE = "<script>alert(1)</script> | `x` [a](javascript:alert(1)) @all ![i](http://x/y.png) \u202e **b**"


def test_nothing_in_results_becomes_markup() -> None:
    row = replace(
        cell(State.FAIL, CaseResult(name=HOSTILE, state=State.FAIL, message=HOSTILE)), reason=HOSTILE, repro=HOSTILE
    )
    refused = cell(State.REFUSED, axes={"spec_k": 1}, cases=(), reason=HOSTILE)
    html = (
        MarkdownIt("commonmark", {"html": True})
        .enable("table")
        .render(page.render(gathered(hosted=[row, refused]), {}, title=HOSTILE))
    )
    assert "<script" not in html
    assert "<img" not in html
    assert "javascript:" not in re.sub(r"<code.*?</code>", "", html, flags=re.DOTALL)
    assert "\u202e" not in html


def test_the_summary_renders_in_a_browser(tmp_path: Path) -> None:
    """Through a Markdown renderer with GitHub's tables, in Chromium: no table is broken, and nothing is script."""
    from playwright.sync_api import sync_playwright

    device = on_device(row for row in results() if row.axes["arch"] == "sm90")
    text = page.render(gathered(device=device, hosted=list(results())), {}, title="nightly")
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    file = tmp_path / "summary.html"
    file.write_text(f"<!doctype html><meta charset=utf-8><body style='font-family:sans-serif;max-width:980px'>{body}")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1000, "height": 900})
        shown.goto(file.as_uri())
        assert shown.locator("h1").first.inner_text() == "Attention matrix: nightly"
        jobs = shown.locator("table").first
        assert jobs.locator("tbody tr").count() == 2
        assert jobs.locator("tbody tr").nth(0).locator("td").count() == 6
        assert shown.locator("table").count() >= 5
        assert shown.locator("p", has_text="| ---").count() == 0, "a table was not taken for one"
        shown.screenshot(path=tmp_path / "summary.png")
        browser.close()
    assert (tmp_path / "summary.png").stat().st_size > 10_000
