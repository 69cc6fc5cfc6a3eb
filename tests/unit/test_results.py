"""results.json: complete, valid against its schema, read back as it was written."""

import json
from dataclasses import fields, replace
from datetime import date
from pathlib import Path

import jsonschema
import pytest

from runner import results
from runner.axes import NEUTRAL
from runner.conditions import Selector
from runner.errors import MachineError, UsageError
from runner.matrix import KnownIssue
from runner.model import ENVIRONMENT, CaseResult, Cell, CellOutcome, CellResult, Evidence, State, Verdict
from runner.plan import Planned
from tests.loads import SOLO
from tests.unit import synthetic

TODAY = date(2026, 11, 29)


def planned(id_, unsupported=""):
    axes = {axis: values[0] for axis, values in synthetic.AXES.items()} | {"arch": id_, "spec_k": 3}
    cell = Cell(id=id_, axes=axes, labels={}, load=SOLO, unsupported=unsupported)
    return Planned(cell=cell, evidence=Evidence.EMULATED)


def ran(id_, *cases, **facts):
    return CellOutcome(cell=planned(id_).cell, evidence=Evidence.DEVICE, cases=cases, **facts)


def build(plan, outcomes, known=()):
    return results.build(
        plan,
        outcomes,
        known=known,
        expect=(),
        before={},
        repro_of=lambda cell: f"runner repro {cell.id}",
        today=TODAY,
    )


OVERFLOWED = synthetic.overflowed()
PASSED = CaseResult(name="test_b", state=State.PASS)


def test_every_planned_cell_has_a_result_in_the_order_of_the_plan():
    plan = [planned("a"), planned("b", "no GPU"), planned("c"), planned("d")]
    outcomes = [ran("c", PASSED), ran("a", PASSED, OVERFLOWED, duration_s=0.5)]
    rows = build(plan, outcomes)
    assert [(row.id, row.state) for row in rows] == [
        ("a", State.OVERFLOW),
        ("b", State.UNSUPPORTED),
        ("c", State.PASS),
        ("d", State.NOT_RUN),
    ]
    assert rows[0].overflow == OVERFLOWED.overflow
    assert rows[0].repro == "runner repro a"
    assert (rows[0].evidence, rows[0].duration_s) == (Evidence.DEVICE, 0.5)
    assert (rows[1].reason, rows[1].repro) == ("no GPU", "")


def test_an_environment_always_names_the_same_things():
    (row,) = build([planned("a")], [ran("a", PASSED, environment={"vllm": "0.32.0"})])
    assert row.environment == {**dict.fromkeys(ENVIRONMENT, ""), "vllm": "0.32.0"}


def test_known_issues_are_applied():
    issue = KnownIssue(selector=Selector({}), state=State.OVERFLOW, issue=synthetic.ISSUE, because="so")
    rows = build([planned("a"), planned("b")], [ran("a", OVERFLOWED), ran("b", PASSED)], known=[issue])
    assert [row.verdict for row in rows] == [Verdict.XFAIL, Verdict.XPASS]


def test_a_cell_planned_twice_is_refused():
    with pytest.raises(AssertionError, match="twice"):
        build([planned("a"), planned("a")], [])


def test_results_are_read_back_as_they_were_written(tmp_path):
    of_all_axes = [replace(row, axes={**row.axes, **NEUTRAL}) for row in synthetic.results()]
    rows = tuple(synthetic.known(of_all_axes))
    assert len(rows) == 3780
    results.write_atomically(tmp_path / results.NAME, results.to_json(rows))
    assert results.read(tmp_path) == rows
    assert results.read(tmp_path / results.NAME) == rows


def test_text_that_utf8_cannot_hold_is_kept_readable(tmp_path):
    bad = CaseResult(name="test_\ud800", state=State.FAIL, message="\udfff")
    rows = build([planned("a")], [ran("a", bad)])
    results.write_atomically(tmp_path / results.NAME, results.to_json(rows))
    assert results.read(tmp_path)[0].cases[0].message == "\\udfff"


def test_the_shipped_schema_is_the_one_of_the_types():
    shipped = json.loads(results.SCHEMA.read_text())
    assert shipped == results.schema(), "write it anew: see CONTRIBUTING.md"
    jsonschema.Draft202012Validator.check_schema(shipped)


def test_results_are_valid_against_the_schema_and_a_broken_row_is_not():
    validator = jsonschema.Draft202012Validator(json.loads(results.SCHEMA.read_text()))
    axes = {**synthetic.AXES, "arch": ("sm80", "sm90", "sm100"), "chunk": (64,)}
    rows = json.loads(results.to_json(tuple(synthetic.known(synthetic.results(axes)))))
    validator.validate(rows)
    assert {row["verdict"] for row in rows} >= {"pass", "xfail", "refused", "unsupported"}
    for key, value in (("state", "great"), ("verdict", None), ("overflow", [{"buffer": "x"}]), ("evidence", "hearsay")):
        assert not validator.is_valid([{**rows[0], key: value}])
    assert not validator.is_valid([{key: value for key, value in rows[0].items() if key != "evidence"}])


def test_a_row_has_every_field_of_the_contract():
    contract = {"id", "axes", "state", "verdict", "evidence", "duration_s", "cases", "overflow", "reason"}
    contract |= {"repro", "environment", "resolved"}
    row = json.loads(results.to_json([synthetic.cell()]))[0]
    assert (
        set(row)
        == contract | {"known", "expired", "expected", "reruns", "ended_at"}
        == {field.name for field in fields(CellResult)}
    )
    assert set(row["environment"]) == set(ENVIRONMENT)


def test_a_run_from_before_an_axis_was_thought_of_has_its_neutral_value(tmp_path):
    rows = json.loads(results.to_json(tuple(synthetic.known(synthetic.results(synthetic.AXES)))))
    for row in rows:
        row["axes"] = {axis: value for axis, value in row["axes"].items() if axis != "case"}
    (tmp_path / results.NAME).write_text(json.dumps(rows))
    assert {row.axes["case"] for row in results.read(tmp_path)} == {"metadata"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "no such file"),
        ("", "not the results"),
        ("{}", "not the results"),
        ('[{"id": "a"}]', "0.axes"),
        ("\x00\x01", "not the results"),
    ],
)
def test_what_is_not_results_is_refused_with_a_place(tmp_path, text, words):
    if text is not None:
        (tmp_path / results.NAME).write_text(text)
    with pytest.raises(UsageError, match=words) as error:
        results.read(tmp_path)
    assert str(tmp_path / results.NAME) in str(error.value)
    assert "pydantic" not in str(error.value)


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    results.write_atomically(path, "old")

    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(MachineError, match="No space left on device"):
        results.write_atomically(path, "new")
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]
    assert path.read_text() == "old"


def test_written_files_can_be_read_by_others(tmp_path):
    results.write_atomically(tmp_path / "new" / "x", "text")
    assert (tmp_path / "new" / "x").stat().st_mode & 0o777 == 0o644


def test_overflow_that_two_cases_show_is_listed_once():
    again = replace(OVERFLOWED, name="test_again")
    (row,) = build([planned("a")], [ran("a", OVERFLOWED, again)])
    assert len(row.overflow) == 1
    assert [len(case.overflow) for case in row.cases] == [1, 1]
