"""report.md: fits GitHub's limit, and nothing from a result can leave its code block."""

from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from runner.model import CaseResult, State, Verdict
from runner.reports import markdown
from tests.unit import synthetic
from tests.unit.synthetic import ISSUE, cell, failed, overflow, overflowed

HOSTILE = (
    "a|b `x` ```` <img src=x onerror=y> @everyone [t](http://e.vil) **b** $x$ #1 &amp; \n```\n# head\n| c |\x1b[31m"
)


def elements(text):
    """Every token that a reader's Markdown makes of the report, tables included."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    return [*tokens, *(child for token in tokens for child in token.children or ())]


def test_the_verdict_comes_first_and_the_sum_adds_up():
    rows = tuple(synthetic.known(synthetic.results()))
    text = markdown.render(rows, exit_code=0, title="run 1")
    assert text.startswith("# Attention matrix: `run 1`\n\n**exit 0: everything as expected**\n")
    assert "| xfail | 432 |\n| **planned** | **3,780** |" in text
    order = ["**exit", "| verdict", "2,592 results: emulated", "## Known", "## Heat map", "## Not judged"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_unexpected_groups_come_before_known_ones():
    rows = [*synthetic.known(synthetic.results()), cell(State.FAIL, axes={"vllm": "0.33.0"})]
    text = markdown.render(rows, exit_code=1)
    assert text.index("## Unexpected: 1 group") < text.index("## Known, and still so: 3 groups")


def test_a_run_with_known_trouble_names_the_flag_that_shows_it_without():
    rows = list(synthetic.results())
    hint = "\nknown issues explain 432 cells: `runner --no-known` judges without them\n"
    assert hint in markdown.render(list(synthetic.known(rows)), exit_code=0)
    assert "--no-known" not in markdown.render(rows, exit_code=1)


def test_it_says_where_in_vllm_it_was_raised_and_what_a_known_issue_hides():
    hidden = cell(State.OVERFLOW, overflowed(), overflowed("test_b"), axes={"spec_k": 1})
    rows = [
        cell(State.FAIL, failed("test_a"), failed("test_b")),
        replace(hidden, verdict=Verdict.XFAIL, known=ISSUE),
        replace(cell(State.REFUSED, axes={"spec_k": 2}), verdict=Verdict.UNEXPECTED, reason="no kernel"),
        cell(State.REFUSED, axes={"spec_k": 3}, reason="why", expected="as vLLM documents"),
    ]
    text = markdown.render(rows, exit_code=1)
    assert (
        "- raised: `AssertionError at vllm/v1/attention/backends/flashinfer.py:812 in build: no room for 5 rows`\n"
        in text
    )
    assert "- also: `1 case: test_b`\n" in text
    assert "- besides: `1 case ended at the same overflow and judged nothing else: test_b`\n" in text
    assert "\n1 xfail: behind them 1 of 2 cases were not judged\n" in text
    assert "### `refused! · flashinfer · 1 cell · emulated`\n" in text
    assert "| refused! | 1 |\n" in text
    assert "| refused | 1 | `why (expected: as vLLM documents)` |\n" in text


def test_known_links_are_links_and_nothing_else_is():
    row = replace(cell(State.OVERFLOW, overflowed()), verdict=Verdict.XFAIL, known=ISSUE)
    assert f"- known: <{ISSUE}>\n" in markdown.render([row], exit_code=0)
    for evil in ("javascript:alert(1)", "https://x/ <b>", "https://x/>b", "[a](b)", "https://@evil/"):
        assert markdown.link(evil).startswith("`") or ">" not in markdown.link(evil)[1:-1]
    assert markdown.link("javascript:alert(1)") == "`javascript:alert(1)`"
    assert markdown.link("https://a.b/c?d=1 http://e.f") == "<https://a.b/c?d=1> <http://e.f>"


def test_hostile_text_stays_in_code():
    case = CaseResult(name=HOSTILE, state=State.OVERFLOW, message=HOSTILE, overflow=(overflow(buffer=HOSTILE),))
    rows = [
        cell(State.OVERFLOW, case, axes={"backend": HOSTILE, "load": HOSTILE}, repro=HOSTILE, known=HOSTILE),
        cell(State.REFUSED, axes={"spec_k": 3}, reason=HOSTILE),
        cell(State.SKIPPED, axes={"spec_k": 5}, reason="`" * 40),
    ]
    text = markdown.render(rows, exit_code=1, title=HOSTILE)
    found = elements(text)
    kinds = {token.type for token in found}
    assert not kinds & {"html_block", "html_inline", "link_open", "image"}
    outside = " ".join(token.content for token in found if token.type == "text")
    for word in ("everyone", "onerror", "evil", "head", "\x1b"):
        assert word not in outside, word
    inside = " ".join(token.content for token in found if token.type in {"code_inline", "fence"})
    assert "@everyone" in inside
    assert "\\x1b[31m" in inside
    # every table row has the cells of its head
    assert text.count("| a\\|b") + text.count("a\\|b") >= 1
    assert [t.tag for t in found if t.type == "heading_open"].count("h1") == 1


@pytest.mark.parametrize("ticks", range(6))
def test_inline_code_holds_any_run_of_backticks(ticks):
    content = f"x{'`' * ticks}y"
    (token,) = [token for token in elements(markdown.code(content)) if token.type == "code_inline"]
    assert token.content == content


def test_a_flood_of_groups_is_cut_below_the_limit_and_counted():
    rows = [
        cell(State.FAIL, CaseResult(name=f"test_{i}_{'ü' * 400}", state=State.FAIL, message="é" * 4000), id=str(i))
        for i in range(3000)
    ]
    text = markdown.render(rows, exit_code=1)
    assert len(text.encode()) < 1 << 20
    shown = text.count("\n### ")
    assert 100 < shown < 3000
    assert f"… and {3000 - shown:,} groups left out" in text
    assert "## Heat map" in text


def test_a_heat_map_that_is_too_large_is_left_out_with_a_word():
    rows = [cell(axes={"load": f"load_{i}", "arch": f"sm{j}"}) for i in range(300) for j in range(60)]
    text = markdown.render(rows, exit_code=0)
    assert len(text.encode()) < 1 << 20
    assert "too large for this page" in text
