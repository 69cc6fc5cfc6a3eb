"""What the cases cannot judge in a release is said wherever people read results."""

import io
from dataclasses import replace

from rich.console import Console

from runner.model import State
from runner.reports import markdown, not_judged, terminal
from runner.reports.html import page
from tests.unit.synthetic import cell

LESS = {"not_judged": {"padding": "its model runner decides", "CUDA graphs": "it wraps no builder"}}


def old(**axes):
    return replace(cell(axes=axes), resolved=LESS)


def test_cells_are_told_by_release_and_by_what_did_not_judge_them() -> None:
    said = not_judged.line([old(vllm="0.10.0"), old(vllm="0.10.0", arch="sm100"), cell(axes={"vllm": "0.32.0"})])
    assert said == "vLLM 0.10.0: 2 cells were not judged by some cases: padding, CUDA graphs"
    assert not_judged.line([cell(), cell(State.FAIL)]) == ""


def test_no_more_than_three_releases_are_told() -> None:
    said = not_judged.line([old(vllm=f"0.1{n}.0") for n in range(5)])
    assert said.count("was not judged by some") == 3
    assert said.endswith("; and 2 more releases")


def test_what_is_no_kind_is_none() -> None:
    for said in ("padding", ["padding"], 3, None, {}):
        assert not_judged.kinds(replace(cell(), resolved={"not_judged": said})) == {}
    hostile = replace(cell(), resolved={"not_judged": {"a\n::error::b": ["c\nd"]}})
    assert "\n" not in not_judged.line([hostile])


def test_terminal_summary_and_page_say_it() -> None:
    console = Console(record=True, width=200, file=io.StringIO())
    terminal.show(console, [old()], exit_code=0)
    assert "1 cell was not judged by some cases: padding" in console.export_text()
    assert "1 cell was not judged by some cases: padding" in markdown.render([old()], exit_code=0)
    assert "1 cell was not judged by some cases: padding" in page.render([old()], exit_code=0)
