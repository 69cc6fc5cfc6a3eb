"""Merged runs: which result of a cell counts, which cannot both be right, and that the order does not matter."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import cli, merge, merge_rules, session
from runner.engines.fake import FakeEngine, Step
from runner.journal import read
from runner.matrix import Matrix
from runner.messages import Case, Done
from runner.model import (
    Batch,
    CaseResult,
    Cell,
    CellFinished,
    CellOutcome,
    Evidence,
    How,
    Load,
    Overflow,
    State,
)
from runner.options import EngineName, Machine
from runner.plan import Planned

LOAD = Load(
    name="solo",
    max_num_seqs=1,
    max_num_batched_tokens=8,
    max_model_len=8,
    block_size=1,
    num_heads=1,
    num_kv_heads=1,
    head_size=1,
    dtype="bfloat16",
)
NAMES = ("a", "b", "c")


def outcome_of(
    state: State = State.PASS,
    *,
    cell: str = "a",
    evidence: Evidence = Evidence.EMULATED,
    at: str = "1",
    machine: str = "lab1",
    cases: str = "cccc",
    how: How | None = None,
) -> CellOutcome:
    """What became of a cell; without a case where the state is one that only the machine brings about."""
    overflow = Overflow(
        buffer="x", required=2, allocated=1, how=how or How.RAISED, batch=Batch(query_lens=(1,), seq_lens=(1,))
    )
    case = CaseResult(name="test_x", state=state, overflow=(overflow,) if state is State.OVERFLOW else ())
    return CellOutcome(
        cell=Cell(id=cell, axes={"vllm": "0.32.0", "backend": cell}, labels={}, load=LOAD),
        evidence=evidence,
        cases=() if state in {State.INFRA, State.NOT_RUN, State.MISSING} else (case,),
        infra="no image" if state is State.INFRA else "",
        not_run=state is State.NOT_RUN,
        ended_at=at,
        environment={"machine": machine, "cases_digest": cases},
    )


def test_a_result_that_counts_over_one_without_a_verdict_is_told() -> None:
    for other, told in ((State.MISSING, 1), (State.INFRA, 0)):
        found = {"a": (outcome_of(other), outcome_of(State.PASS, at="2"))}
        assert sum("no verdict (missing)" in line for line in merge_rules.notes(found)) == told


OUTCOMES = st.builds(
    outcome_of,
    st.sampled_from(list(State)),
    cell=st.sampled_from(NAMES),
    evidence=st.sampled_from(list(Evidence)),
    at=st.sampled_from("123"),
    machine=st.sampled_from(("lab1", "lab2")),
    cases=st.sampled_from(("cccc", "dddd")),
    how=st.sampled_from(list(How)),
)
PARTS = st.lists(OUTCOMES, max_size=8)

Merged = dict[str, tuple[CellOutcome, ...]]


def joined(*parts: Iterable[CellOutcome]) -> Merged:
    return {cell: merge_rules.in_order(found) for cell, found in merge_rules.gathered(parts).items()}


def flat(merged: Merged) -> list[CellOutcome]:
    """As they stand in the journal of the merged run."""
    return [one for found in merged.values() for one in found]


@given(PARTS, PARTS, PARTS)
def test_in_whatever_order_and_grouping_runs_are_merged_the_same_comes_out(a, b, c) -> None:
    whole = joined(a, b, c)
    assert joined(flat(joined(a, b)), c) == whole
    assert joined(a, flat(joined(b, c))) == whole
    assert joined(c, b, a) == whole


@given(PARTS, PARTS)
def test_merging_again_changes_nothing(a, b) -> None:
    whole = joined(a, b)
    assert joined(flat(whole)) == whole
    assert joined(flat(whole), a, b, b) == whole


@given(PARTS, PARTS)
def test_no_outcome_is_lost_and_none_is_made_up(a, b) -> None:
    merged = flat(joined(a, b))
    assert all(one in merged for one in [*a, *b])
    assert all(one in [*a, *b] for one in merged)


@given(PARTS, PARTS)
def test_what_clashes_does_so_in_whatever_order(a, b) -> None:
    def named(merged: Merged) -> set[tuple[str, Evidence]]:
        return {(clash.cell, clash.evidence) for clash in merge_rules.clashes(merged.values(), seed=0)}

    by_definition = {
        (x.cell.id, x.evidence)
        for x in [*a, *b]
        for y in [*a, *b]
        if x.cell.id == y.cell.id
        and x.evidence is y.evidence
        and x.environment["cases_digest"] == y.environment["cases_digest"]
        and not {state(x), state(y)} & {"missing", "infra", "skipped", "not_run"}
        and said(x) != said(y)
    }
    assert named(joined(a, b)) == named(joined(b, a)) == by_definition


def state(one: CellOutcome) -> str:
    """By the one case that it has, or why it has none."""
    if one.not_run or one.infra:
        return "not_run" if one.not_run else "infra"
    return one.cases[0].state.value if one.cases else "missing"


def said(one: CellOutcome) -> object:
    return state(one), [(o.buffer, o.how) for case in one.cases for o in case.overflow]


@pytest.mark.parametrize(
    ("loses", "counts"),
    [
        (outcome_of(State.PASS, evidence=Evidence.EMULATED, at="2"), outcome_of(State.FAIL, evidence=Evidence.DEVICE)),
        (outcome_of(State.FAIL, evidence=Evidence.EMULATED, at="2"), outcome_of(State.PASS, evidence=Evidence.DEVICE)),
        (outcome_of(State.PASS, at="1", cases="cccc"), outcome_of(State.FAIL, at="2", cases="dddd")),
        (outcome_of(State.INFRA, evidence=Evidence.DEVICE, at="9"), outcome_of(State.PASS)),
        (outcome_of(State.INFRA, at="9"), outcome_of(State.INFRA, evidence=Evidence.DEVICE)),
        (outcome_of(State.NOT_RUN, at="9"), outcome_of(State.CRASH)),
        (outcome_of(State.SKIPPED, at="9"), outcome_of(State.REFUSED)),
        (outcome_of(State.MISSING, at="9"), outcome_of(State.PASS)),
        (outcome_of(State.NOT_RUN, at="9"), outcome_of(State.SKIPPED)),
        (outcome_of(State.SKIPPED, at="9"), outcome_of(State.INFRA)),
        (outcome_of(State.INFRA, at="9"), outcome_of(State.MISSING)),
    ],
)
def test_which_result_counts(loses: CellOutcome, counts: CellOutcome) -> None:
    for order in ((loses, counts), (counts, loses)):
        assert joined(order)["a"][-1] == counts


def plan_of(words: Sequence[tuple[str, Evidence, str]]) -> list[Planned]:
    return [Planned(cell=outcome_of(cell=c).cell, evidence=kind, skipped=skipped) for c, kind, skipped in words]


PLANS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(list(Evidence)), st.sampled_from(("", "x", "y"))))


@given(PLANS, PLANS, PLANS)
def test_plans_are_joined_in_whatever_order(a, b, c) -> None:
    chart = Matrix(axes={"backend": tuple(reversed(NAMES))}, loads={}, environments={}, tiers={})

    def join(*plans: Iterable[Planned]) -> tuple[Planned, ...]:
        return merge_rules.planned(plans, {}, chart).planned

    a, b, c = map(plan_of, (a, b, c))
    whole = join(a, b, c)
    assert join(join(a, b), c) == join(a, join(b, c)) == join(c, b, a) == join(whole, whole) == whole
    ids = [one.cell.id for one in whole]
    assert ids == sorted({one.cell.id for one in [*a, *b, *c]}, reverse=True), "each once, in the order of the matrix"
    for one in whole:
        found = [other for other in [*a, *b, *c] if other.cell.id == one.cell.id]
        assert bool(one.skipped) == all(other.skipped for other in found)


RUNS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(list(Evidence)), st.none() | st.sampled_from("123")))


def run_of(words: Sequence[tuple[str, Evidence, str | None]]) -> tuple[list[Planned], list[CellOutcome]]:
    """A plan, and results of some of its cells, with the evidence that was planned."""
    words = list({cell: (cell, kind, at) for cell, kind, at in words}.values())
    results = [
        outcome_of(State.INFRA if at == "1" else State.PASS, cell=c, evidence=e, at=at) for c, e, at in words if at
    ]
    return plan_of([(cell, kind, "") for cell, kind, _ in words]), results


@given(RUNS, RUNS, RUNS)
def test_a_result_has_the_evidence_that_is_planned_in_whatever_order_runs_are_joined(a, b, c) -> None:
    chart = Matrix(axes={"backend": NAMES}, loads={}, environments={}, tiers={})

    def join(*runs: tuple[Sequence[Planned], Sequence[CellOutcome]]) -> tuple[tuple[Planned, ...], list[CellOutcome]]:
        merged = joined(*(outcomes for _, outcomes in runs))
        plan = merge_rules.planned((planned for planned, _ in runs), merged, chart)
        return plan.planned, sorted(flat(merged), key=merge_rules.dump)

    a, b, c = map(run_of, (a, b, c))
    whole = join(a, b, c)
    assert join(join(a, b), c) == join(a, join(b, c)) == join(c, b, a) == join(whole, whole) == whole
    merged = joined(whole[1])
    for one in whole[0]:
        if one.cell.id in merged:
            assert one.evidence is merged[one.cell.id][-1].evidence


@pytest.mark.parametrize("raised", [False, True])
def test_silent_and_raised_disagree_though_both_overflow(raised: bool) -> None:
    other = outcome_of(State.OVERFLOW, how=How.RAISED if raised else How.SILENT, machine="lab2", at="2")
    found = merge_rules.clashes(joined([outcome_of(State.OVERFLOW), other]).values(), seed=0)
    expected = (
        [] if raised else ["a (emulated): overflow: x raised on lab1 at 1 against overflow: x silent on lab2 at 2"]
    )
    assert [str(one) for one in found] == expected


# Whole runs, in which an engine plays what a cell says.


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine(playing(lambda _: State.PASS))

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[FakeEngine]:
        yield fake
        fake.close()

    monkeypatch.setattr(session, "open_engine", opened)
    monkeypatch.setattr(session, "choose", lambda *_: Machine(engine=EngineName.LOCAL, why="as asked"))
    on(monkeypatch, "lab1")
    return fake


def on(monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    facts = {"machine": machine, "cases_digest": "cccc", "recipe_digest": "aaaa"}
    monkeypatch.setattr(session, "facts_of", lambda *_: lambda order: facts)


def playing(state_of: Callable[[str], State]) -> Callable[[str, float], Iterable[Step]]:
    def play(cell: str, _timeout_s: float) -> Iterable[Step]:
        case = Case(cell=cell, name="test_x", state=state_of(cell), message="", duration_s=0.0)
        return [case, Done(cell=cell, duration_s=0.0, death=None)]

    return play


def some_fail(cell: str) -> State:
    return State.FAIL if sum(cell.encode()) % 4 == 0 else State.PASS


def table(run: str) -> list[tuple[str, str, str]]:
    rows = json.loads((Path(run) / "results.json").read_text())
    return [(row["id"], row["verdict"], row["environment"]["machine"]) for row in rows]


def verdicts(run: str) -> list[tuple[str, str]]:
    return [(id_, verdict) for id_, verdict, _ in table(run)]


def test_shards_of_two_machines_are_the_whole(engine: FakeEngine, in_small, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.play = playing(some_fail)
    in_small()
    assert cli.main(["--out", "whole", "--jobs", "1"]) == 1
    assert cli.main(["--out", "one", "--shard", "1/2", "--jobs", "1"]) == 1
    on(monkeypatch, "lab2")
    assert cli.main(["--out", "two", "--shard", "2/2", "--jobs", "1"]) == 1
    assert cli.main(["merge", "out", "two", "one"]) == 0
    assert verdicts("out") == verdicts("whole")
    machines = {id_: machine for run in ("one", "two") for id_, _, machine in table(run)}
    assert {id_: machine for id_, _, machine in table("out")} == machines
    assert {"lab1", "lab2"} <= set(machines.values())
    sources = json.loads(Path("out/merged.json").read_text())
    assert sorted(tuple(one["machines"]) for one in sources) == [("lab1",), ("lab2",)]
    assert Path("out/report.md").is_file()
    assert cli.main(["report", "out"]) == 1
    assert verdicts("out") == verdicts("whole")


def test_a_merged_run_is_gone_on_with(engine: FakeEngine, in_small) -> None:
    """What neither had a result for is run, and nothing else."""
    in_small()
    assert cli.main(["--out", "one", "--shard", "1/3", "--jobs", "1", "--no-known"]) == 0
    assert cli.main(["--out", "two", "--shard", "2/3", "--jobs", "1", "--no-known"]) == 0
    journal = Path("two/events.jsonl")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) // 2]))
    assert cli.main(["merge", "out", "one", "two"]) == 0
    left = [id_ for id_, verdict in verdicts("out") if verdict == "not_run"]
    assert left
    told = sum(len(worker.told) for worker in engine.workers)
    assert cli.main(["resume", "out", "--jobs", "1"]) == 0
    assert sum(len(worker.told) for worker in engine.workers) - told >= len(left)
    finished = [event.outcome.cell.id for event in read(Path("out/events.jsonl")) if isinstance(event, CellFinished)]
    assert len(finished) == len(set(finished))
    assert {verdict for _, verdict in verdicts("out")} == {"pass", "unsupported"}


def test_a_merged_run_can_be_merged(engine: FakeEngine, in_small) -> None:
    in_small()
    for number in (1, 2, 3):
        assert cli.main(["--out", str(number), "--shard", f"{number}/3", "--jobs", "1", "--no-known"]) == 0
    for out, *runs in (
        ("12", "1", "2"),
        ("23", "2", "3"),
        ("12-3", "12", "3"),
        ("1-23", "1", "23"),
        ("all", "3", "1", "2", "2"),
    ):
        assert cli.main(["merge", out, *runs]) == 0
    for name in ("results.json", "plan.json", "merged.json", "matrix.yaml"):
        assert len({Path(run, name).read_text() for run in ("12-3", "1-23", "all")}) == 1, name


def test_results_that_disagree_are_refused_and_named(
    engine: FakeEngine, in_small, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small()
    cell = "0.32.0-flashinfer-sm100-hybrid_on-k0-c64-solo"
    assert cli.main(["--out", "one", "--no-known", "--filter", "sm100"]) == 0
    engine.play = playing(lambda id_: State.FAIL if id_ == cell else State.PASS)
    on(monkeypatch, "lab2")
    assert cli.main(["--out", "two", "--no-known", "--filter", "sm100"]) == 1
    capsys.readouterr()
    assert cli.main(["merge", "out", "one", "two"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("1 cell with results that disagree")
    assert cell in message
    assert "pass on lab1" in message
    assert "fail on lab2" in message
    assert not Path("out").exists()


def test_a_result_of_a_device_counts_and_that_of_the_other_kind_is_told(
    engine: FakeEngine, in_small, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small()
    engine.play = playing(lambda _: State.FAIL)
    assert cli.main(["--out", "one", "--no-known", "--filter", "sm100,k0"]) == 1
    gpu = Machine(engine=EngineName.LOCAL, why="as asked", elsewhere={"sm100": 1})
    monkeypatch.setattr(session, "choose", lambda *_: gpu)
    engine.play = playing(lambda _: State.PASS)
    assert cli.main(["--out", "two", "--no-known", "--filter", "sm100,k0"]) == 0
    capsys.readouterr()
    assert cli.main(["merge", "out", "one", "two"]) == 0
    assert "8 cells: device counts, not emulated, which found something else" in capsys.readouterr().err
    rows = json.loads(Path("out/results.json").read_text())
    assert {(row["state"], row["evidence"]) for row in rows} == {("pass", "device")}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--no-known", "--seed", "1"], "--seed"),
        ([], "--no-known"),
        (["--no-known"], "matrix.yaml"),
    ],
)
def test_runs_that_were_asked_otherwise_are_refused(
    engine: FakeEngine, in_small, small_text: str, capsys: pytest.CaptureFixture[str], options: list[str], what: str
) -> None:
    in_small()
    assert cli.main(["--out", "one", "--no-known", "--filter", "k0"]) == 0
    if what == "matrix.yaml":
        Path("matrix.yaml").write_text(small_text.replace("max_model_len: 36000", "max_model_len: 36001"))
    assert cli.main(["--out", "two", *options, "--filter", "k0"]) == 0
    assert cli.main(["merge", "out", "one", "two"]) == 2
    assert f"differ in {what}" in capsys.readouterr().err
    assert not Path("out").exists()


@pytest.mark.parametrize("lost", ["events.jsonl", "plan.json", "matrix.yaml", "run.json"])
def test_a_run_that_lost_a_file_is_refused(
    engine: FakeEngine, in_small, capsys: pytest.CaptureFixture[str], lost: str
) -> None:
    """Its cells would look as if they had not been run."""
    in_small()
    assert cli.main(["--out", "one", "--no-known", "--filter", "k0"]) == 0
    Path("one", lost).unlink()
    assert cli.main(["merge", "out", "one"]) == 2
    assert f"one: has no {lost}" in capsys.readouterr().err


PATCH = """--- a/vllm/x.py
+++ b/vllm/x.py
@@ -1 +1 @@
-a
+{}
"""


def test_two_candidates_of_one_name_are_refused(
    engine: FakeEngine, in_small, capsys: pytest.CaptureFixture[str]
) -> None:
    in_small()
    for run, content in (("one", "b"), ("two", "b"), ("three", "c")):
        Path("fix.patch").write_text(PATCH.format(content))
        assert cli.main(["--out", run, "--no-known", "--filter", "k0,sm90", "--candidate", "fix=fix.patch@0.32.0"]) == 0
    assert cli.main(["merge", "out", "one", "two"]) == 0
    assert Path("out/candidates/fix.patch").read_text() == PATCH.format("b")
    rows = json.loads(Path("out/results.json").read_text())
    assert {row["axes"]["vllm"] for row in rows} == {"fix"}
    assert all("--candidate fix=out/candidates/fix.patch@0.32.0" in row["repro"] for row in rows)
    assert cli.main(["merge", "other", "one", "three"]) == 2
    assert "two things under one name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [("name", "../../x", "is no name of one"), ("digest", "0" * 16, "is not the patch that was judged")],
)
def test_a_candidate_that_was_changed_is_refused(
    engine: FakeEngine, in_small, capsys: pytest.CaptureFixture[str], field: str, value: str, message: str
) -> None:
    """Its name becomes that of a file."""
    in_small()
    Path("fix.patch").write_text(PATCH.format("b"))
    assert cli.main(["--out", "one", "--no-known", "--filter", "k0,sm90", "--candidate", "fix=fix.patch@0.32.0"]) == 0
    file = Path("one/candidates.json")
    (one,) = json.loads(file.read_text())
    file.write_text(json.dumps([{**one, field: value}]))
    assert cli.main(["merge", "out", "one"]) == 2
    assert message in capsys.readouterr().err


def test_a_log_is_copied_from_its_own_run_alone(engine: FakeEngine, in_small) -> None:
    in_small()
    assert cli.main(["--out", "one", "--no-known", "--filter", "k0,sm90"]) == 0
    part = merge.read(Path("one"))
    cell = part.outcomes[0].cell.id
    for name, log in (("cells", f"cells/{cell}/attempt-1.log"), ("secret", "../secret/attempt-1.log")):
        folder = Path("one", log).parent
        folder.mkdir(parents=True)
        (folder / "attempt-1.log").write_text(name)
        out = Path(f"out-{name}")
        out.mkdir()
        changed = replace(part, outcomes=(replace(part.outcomes[0], log=log),))
        merge._copy_logs([changed], {cell: changed.outcomes}, out)
        assert [str(path.relative_to(out)) for path in out.rglob("*.log")] == ([log] if name == "cells" else [])


def test_what_one_skips_for_want_of_a_device_another_has(
    engine: FakeEngine, in_small, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_small()
    wanted = ["--no-known", "--filter", "sm100,k0", "--evidence", "device"]
    assert cli.main(["--out", "one", *wanted]) == 0
    gpu = Machine(engine=EngineName.LOCAL, why="as asked", elsewhere={"sm100": 1})
    monkeypatch.setattr(session, "choose", lambda *_: gpu)
    assert cli.main(["--out", "two", *wanted]) == 0
    assert {verdict for _, verdict in verdicts("one")} == {"skipped"}
    assert cli.main(["merge", "out", "one", "two"]) == 0
    rows = json.loads(Path("out/results.json").read_text())
    assert {(row["state"], row["evidence"]) for row in rows} == {("pass", "device")}


def test_a_run_that_has_not_ended_is_told(engine: FakeEngine, in_small, capsys: pytest.CaptureFixture[str]) -> None:
    in_small()
    assert cli.main(["--out", "one", "--no-known", "--filter", "k0"]) == 0
    journal = Path("one/events.jsonl")
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    capsys.readouterr()
    assert cli.main(["merge", "out", "one"]) == 0
    assert "one: has not come to its end" in capsys.readouterr().err


def test_nothing_is_written_over(engine: FakeEngine, in_small, capsys: pytest.CaptureFixture[str]) -> None:
    in_small()
    assert cli.main(["--out", "one", "--no-known", "--filter", "k0"]) == 0
    for out in ("one", "matrix.yaml"):
        before = Path("one/results.json").read_bytes()
        assert cli.main(["merge", out, "one"]) == 2
        assert "is there already" in capsys.readouterr().err
        assert Path("one/results.json").read_bytes() == before
