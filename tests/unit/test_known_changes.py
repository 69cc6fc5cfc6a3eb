"""Known issues after `add`, `update` and `prune`, read from the file that was written: judged against random runs."""

from dataclasses import replace
from datetime import date
from random import Random

import pytest

from runner import expectations
from runner.conditions import Condition, Selector
from runner.errors import UsageError
from runner.known import adding, narrowing, widening, writing
from runner.known.adding import Said
from runner.known.entries import Change
from runner.matrix import KnownIssue, Matrix
from runner.model import CaseResult, CellResult, Fault, How, State, Verdict
from tests.unit import known_tables as tables
from tests.unit.synthetic import cell, overflow, overflowed

TODAY = date(2026, 11, 29)
LINK = "https://example.org/new"
SAID = Said(issue=LINK, because="it: is # so")
TABLES = range(40)


def verdicts(rows: list[CellResult], chart: Matrix) -> list[Verdict]:
    return [expectations.apply(row, chart.known, today=TODAY).verdict for row in rows]


def red(verdict: Verdict) -> bool:
    """A refusal is no matter of known issues."""
    return verdict.fault is Fault.PRODUCT and verdict is not Verdict.UNEXPECTED


def carried_out(text: str, change: Change) -> Matrix:
    """The matrix after the change, by way of its file."""
    return tables.read(writing.rewritten(text, change, tables.read(text)))


def made(seed: int) -> tuple[str, Matrix, list[CellResult], Random]:
    random = Random(seed)
    text = tables.text_of(tables.issues(random, tables.read(tables.text_of([]))))
    chart = tables.read(text)
    return text, chart, tables.table(random, chart), random


def out_of_reach(row: CellResult, known: tuple[KnownIssue, ...]) -> bool:
    """Whether no further entry could make this cell expected: one that is there expects what did not come."""
    live = [entry for entry in known if entry.selector.matches(row.axes) and not entry.flaky]
    found = {(one.buffer, one.how) for one in row.overflow}
    return row.state is State.OVERFLOW and any(
        not any(b == buffer and (not entry.how or how in entry.how) for b, how in found)
        for entry in live
        for buffer in entry.buffer
    )


@pytest.mark.parametrize("seed", TABLES)
def test_after_add_nothing_is_unexpected_that_an_entry_can_cover_and_nothing_else_has_changed(seed: int) -> None:
    text, chart, rows, _ = made(seed)
    change = adding.add(rows, chart, SAID, today=TODAY)
    before, after = verdicts(rows, chart), verdicts(rows, carried_out(text, change))
    for row, old, new in zip(rows, before, after, strict=True):
        if red(old) and old is not Verdict.XPASS and not out_of_reach(row, chart.known):
            assert new in {Verdict.XFAIL, Verdict.FLAKY}, row.id
        else:
            assert new is old, row.id
    assert not adding.add(rows, carried_out(text, change), SAID, today=TODAY), "a second time there is nothing to add"


@pytest.mark.parametrize("seed", TABLES)
def test_what_add_says_it_says_of_cells_that_were_seen_or_never_run_alone(seed: int) -> None:
    _, chart, rows, _ = made(seed)
    bad = {tuple(row.axes.items()) for row in rows if row.state.bad}
    for entry in adding.add(rows, chart, SAID, today=TODAY).added:
        for row in rows:
            if entry.selector.matches(row.axes):
                assert tuple(row.axes.items()) in bad or row.state is State.UNSUPPORTED
        assert tables.read(tables.text_of([entry])).known, "it matches a cell"


@pytest.mark.parametrize("seed", TABLES)
def test_after_prune_nothing_surprises_by_passing_and_what_was_expected_still_is(seed: int) -> None:
    text, chart, rows, _ = made(seed)
    change = narrowing.prune(rows, chart, today=TODAY)
    pruned = carried_out(text, change)
    for row, old, new in zip(rows, verdicts(rows, chart), verdicts(rows, pruned), strict=True):
        assert new is not Verdict.XPASS, row.id
        assert new is old or (old is Verdict.XPASS and not red(new)), row.id
    assert not narrowing.prune(rows, pruned, today=TODAY), "a second time there is nothing to prune"


@pytest.mark.parametrize("seed", TABLES)
def test_prune_leaves_alone_what_the_run_did_not_see(seed: int) -> None:
    """Of the axes that an entry lists values of, no cell with a value that no result has leaves it."""
    text, chart, rows, _ = made(seed)
    pruned = carried_out(text, narrowing.prune(rows, chart, today=TODAY))
    for entry in chart.known:
        spoken_of = [row for row in rows if entry.selector.matches(row.axes)]
        for axis in ("vllm", "kv_dtype"):
            listed = entry.selector.conditions.get(axis)
            unseen = [v for v in listed.values if all(row.axes[axis] != v for row in spoken_of)] if listed else []
            for row in spoken_of[:5]:
                for value in unseen:
                    of_cell = {**row.axes, axis: value}
                    assert any(
                        (one.state, one.issue) == (entry.state, entry.issue) and one.selector.matches(of_cell)
                        for one in pruned.known
                    )


@pytest.mark.parametrize("seed", TABLES)
def test_after_update_the_entries_of_an_issue_fit_the_run(seed: int) -> None:
    text, chart, rows, random = made(seed)
    if not chart.known:
        with pytest.raises(UsageError, match="no known issue has the link"):
            widening.update(rows, chart, LINK, today=TODAY)
        return
    issue = random.choice(chart.known).issue
    updated = carried_out(text, widening.update(rows, chart, issue, today=TODAY))
    mine = [entry for entry in chart.known if entry.issue == issue]
    others = tuple(entry for entry in chart.known if entry.issue != issue)
    for row, old, new in zip(rows, verdicts(rows, chart), verdicts(rows, updated), strict=True):
        assert not red(new) or red(old), row.id
        surprised = expectations.apply(row, updated.known, today=TODAY)
        assert issue not in surprised.known.split() or surprised.verdict is not Verdict.XPASS, row.id
        if row.state.fault is Fault.PRODUCT and not out_of_reach(row, others):
            live = [entry for entry in others if entry.selector.matches(row.axes)]
            missed = expectations.uncovered(row, live)
            if all(any(expectations.explains(entry, trouble) for entry in mine) for trouble in missed):
                assert not red(new), row.id
    assert [e for e in updated.known if e.issue != issue] == list(others), "those of other issues are as they were"


def issue(where: dict, state=State.OVERFLOW, **fields) -> KnownIssue:
    conditions = {axis: Condition("=", tuple(values)) for axis, values in where.items()}
    return KnownIssue(selector=Selector(conditions), state=state, issue=tables.LINKS[0], because="so", **fields)


def chart_of(*known: KnownIssue) -> Matrix:
    return tables.read(tables.text_of(list(known)))


def run_of(chart: Matrix, bad, /, *, case=None, **axes) -> list[CellResult]:
    """Every cell with these values (else those by default); those for which `bad` says so overflow."""
    full = {**chart.axes, "kv_dtype": ("auto",), **axes}
    rows = []
    random = tables.product(*full.values())
    for values in random:
        of_cell = dict(zip(full, values, strict=True))
        if of_cell["arch"] == "cpu" and of_cell["backend"] == "flashinfer":
            rows.append(cell(State.UNSUPPORTED, axes=of_cell, cases=()))
        elif bad(of_cell):
            found = case or overflowed()
            rows.append(cell(found.state, found, axes=of_cell))
        else:
            rows.append(cell(axes=of_cell))
    return rows


def where_of(entry: KnownIssue) -> dict:
    return {axis: list(condition.values) for axis, condition in entry.selector.conditions.items()}


def test_one_pattern_is_one_entry_that_says_all_but_the_axes_it_does_not_depend_on() -> None:
    chart = chart_of()
    rows = run_of(chart, lambda c: c["arch"] == "sm90" and c["spec_k"] > 0, vllm=("0.32.0",))
    (entry,) = adding.add(rows, chart, SAID, today=TODAY).added
    assert where_of(entry) == {"vllm": ["0.32.0"], "arch": ["sm90"], "spec_k": [1, 3], "kv_dtype": ["auto"]}
    assert (entry.buffer, entry.how, entry.state) == (("paged_kv_indptr",), (How.RAISED,), State.OVERFLOW)


def test_cells_that_a_rule_excludes_make_patterns_fewer_and_none_of_their_own() -> None:
    """All archs but cpu with flashinfer are two patterns; with what cannot run anyway they are one."""
    chart = chart_of()
    rows = run_of(chart, lambda c: c["vllm"] == "0.31.0")
    assert {row.axes["vllm"] for row in rows if row.state is State.UNSUPPORTED} == {"0.31.0", "0.32.0"}
    (entry,) = adding.add(rows, chart, SAID, today=TODAY).added
    assert where_of(entry) == {"vllm": ["0.31.0"], "kv_dtype": ["auto"]}


def test_an_axis_is_left_out_where_one_asks_for_it_and_nothing_contradicts() -> None:
    chart = chart_of()
    rows = run_of(chart, lambda c: c["arch"] == "sm90", vllm=("0.32.0",))
    (entry,) = adding.add(rows, chart, SAID, today=TODAY, leaving_out=["kv_dtype"]).added
    assert where_of(entry) == {"vllm": ["0.32.0"], "arch": ["sm90"]}
    rows = run_of(chart, lambda c: c["arch"] == "sm90" and c["spec_k"] == 1)
    with pytest.raises(UsageError, match=r"--any: the entries would speak of 0.31.0-\S+-k0-\S+ too, which passes"):
        adding.add(rows, chart, SAID, today=TODAY, leaving_out=["spec_k"])


def test_an_entry_of_every_cell_names_an_axis_all_the_same() -> None:
    text = tables.text_of([])
    chart = tables.read(text)
    rows = run_of(chart, lambda c: True, kv_dtype=("auto", "fp8"))
    change = adding.add(rows, chart, SAID, today=TODAY)
    assert all(change.added[i].selector.conditions for i in range(len(change.added)))
    everywhere = adding.add(rows, chart, SAID, today=TODAY, leaving_out=list(chart.axes))
    (entry,) = carried_out(text, everywhere).known
    assert where_of(entry) == {"vllm": ["0.31.0", "0.32.0"]}


def test_what_passed_when_it_was_run_again_is_added_as_flaky() -> None:
    chart = chart_of()
    rows = run_of(chart, lambda c: c["arch"] == "sm90", case=CaseResult(name="test_a", state=State.FAIL))
    rows = [replace(row, reruns=(State.PASS,)) if row.state.bad and row.axes["chunk"] == 64 else row for row in rows]
    flaky = {tuple(where_of(e)["chunk"]): e.flaky for e in adding.add(rows, chart, SAID, today=TODAY).added}
    assert flaky == {(64,): True, (8192,): False}


def test_trouble_of_the_machine_beside_that_of_the_product_is_not_covered_up() -> None:
    chart = chart_of()
    lost = CaseResult(name="test_b", state=State.MISSING, message="no result")
    failed = CaseResult(name="test_a", state=State.FAIL, message="no")
    rows = [
        cell(State.FAIL, failed, lost, axes={**dict.fromkeys(chart.axes), **{a: v[0] for a, v in chart.axes.items()}})
    ]
    change = adding.add(rows, chart, SAID, today=TODAY)
    assert not change
    assert change.notes == ("left alone: 1 cell with trouble of machine or harness too, which no entry covers",)


def test_prune_takes_a_value_out_of_a_list_and_keeps_how_the_rest_is_said() -> None:
    chart = chart_of(issue({"arch": ["sm90", "sm100"], "backend": ["flashinfer"]}, buffer=("paged_kv_indptr",)))
    rows = run_of(chart, lambda c: c["arch"] == "sm90" and c["backend"] == "flashinfer", kv_dtype=("auto", "fp8"))
    change = narrowing.prune(rows, chart, today=TODAY)
    ((entry,),) = change.fitted.values()
    assert where_of(entry) == {"arch": ["sm90"], "backend": ["flashinfer"]}
    assert change.notes == (
        "known issue 1 (https://example.org/1): narrowed\n  48 over: arch=sm100\n  48 still so: arch=sm90",
    )


def test_prune_keeps_what_did_not_run_and_tells_seen_and_unseen() -> None:
    """A run by default says nothing of an axis that is off by default, nor of a release that it did not take."""
    chart = chart_of(issue({"arch": ["sm90", "sm100"], "backend": ["flashinfer"]}, buffer=("paged_kv_indptr",)))
    rows = run_of(chart, lambda c: c["arch"] == "sm90", vllm=("0.32.0",))
    change = narrowing.prune(rows, chart, today=TODAY)
    (entries,) = change.fitted.values()
    assert [where_of(entry) for entry in entries] == [
        {"vllm": ["0.31.0"], "arch": ["sm90", "sm100"], "backend": ["flashinfer"]},
        {"arch": ["sm90"], "backend": ["flashinfer"]},
        {"arch": ["sm90", "sm100"], "backend": ["flashinfer"], "kv_dtype": ["fp8"]},
    ]
    (note,) = change.notes
    assert note.splitlines() == [
        "known issue 1 (https://example.org/1): narrowed, in 3 entries",
        "  12 over: vllm=0.32.0 arch=sm100",
        "  12 still so: vllm=0.32.0 arch=sm90",
        "  72 not seen, known as before: vllm=0.31.0; kv_dtype=fp8",
    ]


def test_one_passing_cell_of_another_load_takes_nothing_else_out() -> None:
    """The run of one cell that once made an entry lose an arch for all loads."""
    text = tables.text_of([issue({"arch": ["sm90", "sm100"]}, buffer=("paged_kv_indptr",))])
    solo = text.split("  solo:")[1].split("environments:")[0]
    text = text.replace("load: [solo]", "load: [solo, roomy]").replace(
        "environments:", f"  roomy:{solo}environments:", 1
    )
    chart = tables.read(text)
    row = cell(axes={axis: values[-1] if axis == "load" else values[0] for axis, values in chart.axes.items()})
    pruned = carried_out(text, narrowing.prune([row], chart, today=TODAY))
    for values in tables.product(*chart.axes.values()):
        of_cell = dict(zip(chart.axes, values, strict=True))
        known = any(entry.selector.matches(of_cell) for entry in pruned.known)
        assert known is (of_cell["arch"] != "cpu" and of_cell != row.axes), of_cell


def test_prune_keeps_the_releases_that_did_not_run() -> None:
    chart = chart_of(issue({"vllm": ["0.31.0", "0.32.0"], "arch": ["sm90"]}))
    rows = run_of(chart, lambda c: False, vllm=("0.32.0",), kv_dtype=("auto", "fp8"))
    ((entry,),) = narrowing.prune(rows, chart, today=TODAY).fitted.values()
    assert where_of(entry) == {"vllm": ["0.31.0"], "arch": ["sm90"]}


def test_prune_takes_out_an_entry_that_is_over_in_each_of_its_cells() -> None:
    chart = chart_of(issue({"vllm": ["0.32.0"], "arch": ["sm90"]}))
    rows = run_of(chart, lambda c: False, vllm=("0.32.0",), kv_dtype=("auto", "fp8"))
    change = narrowing.prune(rows, chart, today=TODAY)
    assert (change.fitted, change.added) == ({0: ()}, ())
    assert change.notes == ("known issue 1 (https://example.org/1): taken out\n  48 over: all that were seen",)


def test_a_cell_of_which_a_run_has_two_results_is_over_only_by_both() -> None:
    chart = chart_of(issue({"vllm": ["0.32.0"], "arch": ["sm90"]}))
    good, bad = (run_of(chart, lambda c, so=so: so) for so in (False, True))
    assert not narrowing.prune([*good, *bad], chart, today=TODAY)
    assert not narrowing.prune([*bad, *good], chart, today=TODAY)
    two = chart_of(issue({"vllm": ["0.32.0"], "arch": ["sm90"]}, buffer=("paged_kv_indptr", "mask")))
    whole = CaseResult(name="test_a", state=State.OVERFLOW, overflow=(overflow(), overflow(buffer="mask")))
    both, one, other = (
        run_of(two, lambda c: True, case=case)
        for case in (whole, overflowed("test_a", overflow()), overflowed("test_a", overflow(buffer="mask")))
    )
    for rows in ([*both, *one], [*one, *both], [*one, *other]):
        ((entry,),) = narrowing.prune(rows, two, today=TODAY).fitted.values() or ((two.known[0],),)
        assert entry.buffer == ("paged_kv_indptr", "mask")


def test_what_was_excluded_when_it_ran_and_is_a_cell_now_was_not_seen() -> None:
    chart = replace(chart_of(issue({"arch": ["sm90", "cpu"]})), rules=())
    rows = run_of(chart, lambda c: False, kv_dtype=("auto", "fp8"))
    ((entry,),) = narrowing.prune(rows, chart, today=TODAY).fitted.values()
    assert where_of(entry) == {"arch": ["cpu"], "backend": ["flashinfer"]}
    failed = [cell(State.FAIL, axes=row.axes) if row.axes["arch"] == "cpu" else row for row in rows]
    failed = [row for row in failed if row.axes["backend"] == "flash_attn"] + rows[:0]
    failed += [row for row in rows if row.state is State.UNSUPPORTED]
    for added in adding.add(failed, replace(chart, known=()), SAID, today=TODAY).added:
        assert where_of(added)["backend"] == ["flash_attn"]


@pytest.mark.parametrize(
    ("where", "until"),
    [({"arch": ["sm90", "cpu"], "backend": ["flashinfer"]}, None), ({"vllm": ["0.31.0", "0.32.0"]}, "0.31.0")],
)
def test_prune_leaves_no_rest_that_a_rule_excludes_or_that_is_behind_the_end(where: dict, until: str | None) -> None:
    text = tables.text_of([issue(where, until=until)])
    chart = tables.read(text)
    rows = run_of(chart, lambda c: False, vllm=(until,) if until else chart.axes["vllm"], kv_dtype=("auto", "fp8"))
    change = narrowing.prune(rows, chart, today=TODAY)
    assert change.fitted == {0: ()}
    assert carried_out(text, change).known == ()


def test_prune_takes_a_buffer_that_holds_out_of_an_entry() -> None:
    chart = chart_of(issue({"arch": ["sm90"]}, buffer=("paged_kv_indptr", "mask")))
    case = CaseResult(name="test_a", state=State.OVERFLOW, overflow=(overflow(), overflow(buffer="mask")))
    every = {"kv_dtype": ("auto", "fp8")}
    rows = run_of(chart, lambda c: c["arch"] == "sm90" and c["spec_k"] > 0, case=case, **every)
    rows += run_of(chart_of(), lambda c: c["arch"] == "sm90" and c["spec_k"] == 0, spec_k=(0,), **every)
    rows = list({row.id: row for row in rows}.values())
    change = narrowing.prune(rows, chart, today=TODAY)
    (entries,) = change.fitted.values()
    assert {tuple(where_of(e)["spec_k"]): e.buffer for e in entries} == {
        (1, 3): ("paged_kv_indptr", "mask"),
        (0,): ("paged_kv_indptr",),
    }
    assert "  32 over in a part of its buffers: spec_k=0\n  64 still so: spec_k=1,3" in change.notes[0]


@pytest.mark.parametrize(
    ("still", "kv_dtype", "expected", "said"),
    [
        (False, ("auto", "fp8"), {0: ()}, ": taken out"),
        (True, ("auto", "fp8"), {}, "expired on 2026-11-28: 96 still so: it is left there"),
        (True, ("auto",), {}, "expired on 2026-11-28: 48 still so, 48 not seen: it is left there"),
    ],
)
def test_prune_takes_out_what_has_expired_where_it_is_over_alone(
    still: bool, kv_dtype: tuple, expected: dict, said: str
) -> None:
    chart = chart_of(issue({"arch": ["sm90"]}, until=date(2026, 11, 28)))
    rows = run_of(chart, lambda c: still and c["arch"] == "sm90", kv_dtype=kv_dtype)
    change = narrowing.prune(rows, chart, today=TODAY)
    assert change.fitted == expected
    (note,) = change.notes
    assert said in note


def test_prune_does_not_count_a_pass_behind_the_last_release_of_an_entry() -> None:
    chart = chart_of(issue({"arch": ["sm90"]}, until="0.31.0"))
    rows = run_of(chart, lambda c: c["vllm"] == "0.31.0" and c["arch"] == "sm90")
    assert not narrowing.prune(rows, chart, today=TODAY)


def test_a_flaky_entry_is_not_refuted_by_a_pass() -> None:
    chart = chart_of(issue({"arch": ["sm90"]}, flaky=True))
    assert not narrowing.prune(run_of(chart, lambda c: False), chart, today=TODAY)


def test_update_carries_an_issue_into_the_next_release_as_it_is_said_where_all_of_it_was_seen() -> None:
    chart = chart_of(issue({"vllm": ["0.31.0"], "arch": ["sm90"]}, buffer=("paged_kv_indptr",)))
    rows = run_of(chart, lambda c: c["arch"] == "sm90", vllm=("0.32.0",), kv_dtype=("auto", "fp8"))
    change = widening.update(rows, chart, tables.LINKS[0], today=TODAY)
    ((entry,),) = change.fitted.values()
    assert where_of(entry) == {"arch": ["sm90"]}, "of all releases there are"
    assert not change.added
    change = widening.update(rows[1:], chart, tables.LINKS[0], today=TODAY)
    assert not change.fitted
    assert not any(entry.selector.matches(rows[0].axes) for entry in change.added), "which was not seen"
    assert all(sum(e.selector.matches(row.axes) for e in change.added) for row in rows[1:] if row.state.bad)


def test_update_says_exactly_what_is_beyond_one_axis() -> None:
    chart = chart_of(issue({"vllm": ["0.31.0"], "arch": ["sm90"]}, buffer=("paged_kv_indptr",), owner="somebody"))
    bad = {("sm90", 0), ("sm90", 1), ("sm90", 3), ("sm100", 3)}
    rows = run_of(chart, lambda c: (c["arch"], c["spec_k"]) in bad, vllm=("0.32.0",))
    change = widening.update(rows, chart, tables.LINKS[0], today=TODAY)
    (entry, other) = change.added
    assert where_of(entry) == {"vllm": ["0.32.0"], "arch": ["sm90"], "kv_dtype": ["auto"]}
    assert where_of(other) == {"vllm": ["0.32.0"], "arch": ["sm100"], "spec_k": [3], "kv_dtype": ["auto"]}
    assert (entry.owner, entry.because, entry.buffer) == ("somebody", "so", ("paged_kv_indptr",))


def test_update_gives_an_expired_issue_a_new_end_and_then_it_counts() -> None:
    chart = chart_of(issue({"arch": ["sm90"]}, until=date(2026, 1, 1)))
    rows = run_of(chart, lambda c: c["arch"] == "sm90")
    without = widening.update(rows, chart, tables.LINKS[0], today=TODAY)
    assert not without
    assert without.notes == ("left alone: 48 cells after the end of the entry: give --until",)
    end = (date(2027, 1, 1), frozenset())
    ((entry,),) = widening.update(rows, chart, tables.LINKS[0], today=TODAY, until=end, owner="me").fitted.values()
    assert (entry.until, entry.owner) == (date(2027, 1, 1), "me")
