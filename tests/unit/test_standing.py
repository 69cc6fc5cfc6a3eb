"""What a run tells a person to do about an entry that it refutes: out with it only where no cell is left."""

import re
import shlex
from dataclasses import replace
from datetime import date

import pytest

from runner import expectations, regions, select, standing
from runner.conditions import Selector
from runner.matrix import KnownIssue, Matrix
from runner.model import CellResult, State, Verdict
from tests.unit import known_tables as tables
from tests.unit.synthetic import cell, overflow, overflowed
from tests.unit.test_known_changes import chart_of, issue, run_of

TODAY = date(2026, 11, 29)
EVERY = {"kv_dtype": ("auto", "fp8")}


def told(rows: list[CellResult], chart: Matrix) -> set[str]:
    """The reasons of the cells that surprise, as a run keeps them."""
    judged = [expectations.apply(row, chart.known, today=TODAY) for row in rows]
    after = standing.told(judged, chart.known, chart, TODAY)
    assert [row.verdict for row in after] == [row.verdict for row in judged]
    assert all(new == old for new, old in zip(after, judged, strict=True) if old.verdict is not Verdict.XPASS)
    return {row.reason for row in after if row.verdict is Verdict.XPASS}


KNOWN = "https://example.org/1 is known here as overflow, but the cell passes."


def test_take_the_entry_out_is_said_where_each_of_its_cells_passed() -> None:
    chart = chart_of(issue({"vllm": ["0.32.0"], "arch": ["sm90"]}))
    rows = run_of(chart, lambda c: False, **EVERY)
    out = "Known issue 1 is over in all of its 48 cells: take the entry out (`runner known prune RUN --write`)."
    assert told(rows, chart) == {f"{KNOWN}\n{out}"}


@pytest.mark.parametrize("kept", range(0, 48, 7))
def test_it_is_not_said_where_one_cell_was_not_seen_or_is_still_so(kept: int) -> None:
    chart = chart_of(issue({"vllm": ["0.32.0"], "arch": ["sm90"]}))
    mine = [row for row in run_of(chart, lambda c: False, **EVERY) if chart.known[0].selector.matches(row.axes)]
    (unseen,) = told(mine[:kept] + mine[kept + 1 :], chart)
    assert "Known issue 1 is over in 47 of its 48 cells: 1 not seen." in unseen
    others = [*mine[:kept], *mine[kept + 1 :]]
    (still,) = told([*others, cell(State.OVERFLOW, overflowed(), axes=mine[kept].axes)], chart)
    assert "Known issue 1 is over in 47 of its 48 cells: 1 still so." in still
    (undecided,) = told([*others, cell(State.INFRA, axes=mine[kept].axes)], chart)
    assert "Known issue 1 is over in 47 of its 48 cells: 1 undecided." in undecided
    for text in (unseen, still, undecided):
        assert "take the entry out" not in text
        assert "`runner known prune RUN` takes exactly the cells in which it is over out of the entry." in text


def commands(text: str) -> list[list[str]]:
    return [shlex.split(found) for found in re.findall(r"`(runner --filter [^`]+)` runs", text)]


@pytest.mark.parametrize(
    "where",
    [
        {"vllm": ["0.32.0"], "arch": ["sm90", "sm100"]},
        {"arch": ["sm90"], "hybrid": ["on"], "chunk": [64]},
        {"kv_dtype": ["fp8"]},
    ],
)
def test_the_command_that_is_named_shows_what_was_not_seen(where: dict) -> None:
    """Run one cell, then what each message says: in the end no cell is left that was not seen."""
    chart = chart_of(issue(where))
    entry = chart.known[0]
    every = [dict(zip(chart.axes, v, strict=True)) for v in tables.product(*chart.axes.values())]
    mine = [axes for axes in every if entry.selector.matches(axes) and not chart.rules[0].selector.matches(axes)]
    rows = [cell(axes=mine[0])]
    for _ in range(4):
        (text,) = told(rows, chart)
        if not (found := commands(text)):
            break
        (words,) = found
        ran = select.select(chart, filters=[word for word in words[1:] if word != "--filter"])
        before = {row.id for row in rows}
        number = int(re.search(r"runs ([\d,]+) of those that were not seen", text)[1].replace(",", ""))
        rows += [cell(axes=one.axes) for one in ran if not one.unsupported and cell(axes=one.axes).id not in before]
        assert len(rows) - len(before) == number
    assert len(rows) == len(mine)
    assert "take the entry out" in text


def test_an_ordered_condition_is_given_as_one_filter() -> None:
    text = tables.text_of([issue({"spec_k": [3]})])
    chart = tables.read(text.replace("where: {spec_k: 3}", "where: {spec_k: '>0', vllm: '<0.32'}"))
    (text,) = told(run_of(chart, lambda c: False, spec_k=(1,)), chart)
    assert "`runner --filter 'spec_k>0' --filter vllm=0.31.0` runs" in text


def test_more_cells_than_anyone_runs_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    chart = chart_of(issue({"arch": ["sm90"]}))
    monkeypatch.setattr(standing, "SOME", 3)
    (text,) = told([cell(axes={axis: values[0] for axis, values in chart.axes.items()})], chart)
    assert "known prune" in text
    assert not commands(text)


def test_a_command_that_a_report_would_cut_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    chart = chart_of(issue({"arch": ["sm90"]}))
    rows = [cell(axes={axis: values[0] for axis, values in chart.axes.items()})]
    (text,) = told(rows, chart)
    assert len(commands(text)) == 1
    monkeypatch.setattr(standing, "SHORT", 10)
    (text,) = told(rows, chart)
    assert not commands(text)


def test_cells_too_many_to_count_are_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    chart = chart_of(issue({"arch": ["sm90"]}))
    monkeypatch.setattr(regions, "MAX_PIECES", 0)
    (text,) = told([cell(axes={axis: values[0] for axis, values in chart.axes.items()})], chart)
    assert "is over in 1 of its very many cells: all others not seen" in text


def test_each_entry_that_is_refuted_is_told_of_and_no_other() -> None:
    other = KnownIssue(selector=Selector({}), state=State.FAIL, issue=tables.LINKS[1], because="so", flaky=True)
    old = issue({"arch": ["sm90"]}, until=date(2020, 1, 1))
    chart = chart_of(old, replace(other, selector=old.selector), issue({"arch": ["sm90"]}), issue({"arch": ["sm100"]}))
    (text,) = told(run_of(chart, lambda c: c["arch"] == "sm100", arch=("sm90",)), chart)
    assert re.findall(r"Known issue (\d)", text) == ["3"]


def test_a_release_behind_the_end_of_an_entry_is_none_of_its_cells() -> None:
    chart = chart_of(issue({"arch": ["sm90"]}, until="0.31.0"))
    (text,) = told(run_of(chart, lambda c: False, **EVERY), chart)
    assert "over in all of its 48 cells" in text


def test_a_buffer_that_holds_beside_one_that_does_not_keeps_the_entry() -> None:
    case = overflowed("test_a", overflow(buffer="mask"))
    chart = chart_of(issue({"vllm": ["0.32.0"], "arch": ["sm90"]}, buffer=("paged_kv_indptr", "mask")))
    (text,) = told(run_of(chart, lambda c: c["arch"] == "sm90", case=case, **EVERY), chart)
    assert text.startswith("https://example.org/1 is known here as overflow in paged_kv_indptr, which holds.")
    assert "over in 0 of its 48 cells: 48 over in a part of its buffers." in text


def test_a_deployment_that_cannot_overflow_says_nothing_of_an_entry() -> None:
    chart = chart_of(issue({"vllm": ["0.32.0"], "arch": ["sm90"]}, buffer=("paged_kv_indptr",)))
    rows = [replace(row, resolved={"bounds": {"paged_kv_indptr": [17, 17]}}) for row in run_of(chart, lambda c: False)]
    assert told(rows, chart) == set()
    stands = standing.of(chart.known[0], rows, chart)
    assert (len(stands.over), len(stands.undecided), stands.unseen) == (0, 24, 24)
