"""From cells to jobs, and from what jobs left to results: every planned cell has one, whatever came back."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner import candidates, matrix, results, rundir
from runner.ci import asking, gate, gather, jobs
from runner.ci.api import JobState
from runner.ci.gather import Asker
from runner.ci.jobs import Asked, Side
from runner.conditions import EVERYTHING
from runner.errors import NothingSelected, UsageError
from runner.model import Candidate, CandidateKind, Evidence, State, Verdict
from runner.options import RunOptions
from runner.signoff import facts
from tests.unit.synthetic import cell

TIER = "quick"
"""Of the small matrix: two GPU archs, k 0 and 1, both backends, hybrid on and off, two chunks."""


def made(small, *machines: str, offline: dict[str, str] | None = None, **asked):
    return jobs.make(small, Asked(tier=TIER, machines=dict.fromkeys(machines, 1), offline=offline or {}, **asked))


def test_one_job_for_each_machine_and_one_for_all_hosted_cells(small) -> None:
    (sm90, plan90), (sm100, _), (hosted, all_) = made(small, "sm90", "sm100")
    # 2 backends x 2 hybrid x k 0,1 x 2 chunks = 16 cells of each arch
    assert (sm90.name, sm90.runs_on, sm90.cells) == ("sm90", ("self-hosted", "gpu-release", "sm90"), 16)
    assert sm100.runs_on == ("self-hosted", "gpu-release", "sm100")
    assert (hosted.name, hosted.runs_on, hosted.cells) == ("hosted", ("ubuntu-24.04",), 32)
    assert {one.evidence for one in plan90.planned} == {Evidence.DEVICE}
    assert {one.evidence for one in all_.planned} == {Evidence.EMULATED}


def test_hosted_cells_are_cut_into_jobs_that_hold_each_cell_once(small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "CELLS_PER_JOB", 10)
    parts = made(small)
    assert [job.shard for job, _ in parts] == ["1/4", "2/4", "3/4", "4/4"]
    ids = [one.cell.id for _, plan in parts for one in plan.planned]
    assert len(ids) == len(set(ids)) == 32


def test_more_jobs_than_github_should_have_are_refused(small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "CELLS_PER_JOB", 1)
    monkeypatch.setattr(jobs, "MOST_JOBS", 31)
    with pytest.raises(UsageError, match="32 jobs"):
        made(small)


def test_a_machine_without_a_cell_has_no_job_and_an_unknown_one_is_refused(small) -> None:
    assert [job.name for job, _ in made(small, "sm90", filters=("arch=sm100",))] == ["hosted"]
    with pytest.raises(UsageError, match="'sm9' is no arch that a machine could have, did you mean 'sm90'"):
        made(small, "sm9")
    with pytest.raises(UsageError, match="'cpu' is no arch"):
        made(small, "cpu")
    with pytest.raises(NothingSelected):
        made(small, filters=("spec_k=3",))


def test_what_a_workflow_reads(small) -> None:
    found = tuple(job for job, _ in made(small, "sm90", "sm100", offline={"sm100": "offline: lab2"}))
    github = jobs.as_github(found)
    assert [one["name"] for one in github["device"]["include"]] == ["sm90"]
    assert github["offline"] == [{"name": "sm100", "because": "offline: lab2"}]
    (entry,) = github["hosted"]["include"]
    assert jobs.from_json(entry["job"]) == found[-1], "the text is the job"
    outputs = asking.outputs(found)
    assert outputs["device_names"] == "sm90"
    assert all("\n" not in text for text in outputs.values())
    assert json.loads(outputs["device"]) == github["device"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"name": "../x", "side": "hosted", "runs_on": []}', '{"name": "a;b"}']
)
def test_a_job_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--job is not a job of a plan"):
        jobs.from_json(text)


def test_only_a_gpu_machine_is_asked_for_its_device_and_only_hosted_cells_go_without_a_container(
    small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ATTNMATRIX_CUDA_PYTHON", raising=False)
    (device, _), (hosted, _) = made(small, "sm90")
    one, other = asking.options_of(device), asking.options_of(hosted)
    assert (one.engine, one.evidence, one.require_device, one.filters) == ("docker", "device", True, ("arch=sm90",))
    assert (other.engine, other.evidence, other.require_device, other.tier) == ("local", "emulated", False, TIER)


@pytest.mark.parametrize(
    ("vllm", "commit", "words"),
    [
        ("0.32", "", "'0.32' is no release of the matrix, did you mean '0.32.0'"),
        ("0.32.0", "a" * 40, "a release and a commit of vLLM are asked for"),
        ("", "abc", "give all 40 digits"),
        ("", "$(touch x)", "is no commit"),
    ],
)
def test_what_is_asked_of_vllm_is_checked(small, vllm: str, commit: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        asking.asked(
            chart_of=lambda _: small, tier="", filters=(), vllm=vllm, commit=commit, checkout=Path("x"), machines={}
        )
    assert words in str(error.value)


@pytest.fixture
def world(small, tmp_path: Path):
    """A plan of sm90 and hosted, and what came back: everything, passed."""
    plan = made(small, "sm90")
    runs = tmp_path / "runs"
    for job, cells in plan:
        rows = [
            replace(cell(State.PASS), id=one.cell.id, axes=dict(one.cell.axes), evidence=one.evidence)
            for one in cells.planned
        ]
        put(runs / f"run-{job.name}-1", rows)
    return plan, runs


NOBODY = Asker()
"""Who gathers on a desk."""


def collect(plan, runs: Path, asker: Asker = NOBODY):
    return gather.gather(plan, runs, results.read, asker)


def put(place: Path, rows, *, attempt: int | None = None, workflow: int = 77, job: str | None = None) -> None:
    """A run directory that says of itself what its name says, unless it says something else."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "results.json").write_text(results.to_json(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_RUN_ID", str(workflow))
        patch.setenv("GITHUB_RUN_ATTEMPT", place.name.rpartition("-")[2] if attempt is None else str(attempt))
        of = place.name.split("-")[1] if job is None else job
        rundir.keep(rundir.RunDirectory(place.name, place), RunOptions(matrix=Path("matrix.yaml"), job=of))


def asked_by(attempt: int, **ended: str) -> Asker:
    """An attempt at workflow run 77, in which jobs ended as they are said to have, or were never taken."""
    states = {
        name: JobState(name=f"x ({name})", status="queued")
        if how == "queued"
        else JobState(name=f"x ({name})", status="completed", conclusion=how)
        for name, how in ended.items()
    }
    return Asker(workflow=77, attempt=attempt, states=states or None)


def changed(place: Path, number: int, attempt: int | None = None, job: str | None = None, **fields) -> None:
    rows = list(results.read(place))
    rows[number] = replace(rows[number], **fields)
    put(place, rows, attempt=attempt, job=job)


def states(found, side: Side) -> set:
    return {row.state for row in found.rows[side]}


def test_everything_came_back(world) -> None:
    plan, runs = world
    found = collect(plan, runs)
    assert states(found, Side.DEVICE) == states(found, Side.HOSTED) == {State.PASS}
    assert [(came.job.name, came.planned, came.arrived) for came in found.came] == [
        ("sm90", 16, 16),
        ("hosted", 32, 32),
    ]
    assert gate.code(found, {}) == 0


def test_a_job_that_left_nothing_is_not_run_and_machine_trouble(world, tmp_path: Path) -> None:
    plan, _ = world
    found = collect(plan, tmp_path / "nothing")
    assert states(found, Side.HOSTED) == {State.NOT_RUN}
    assert found.troubles == ("sm90: left no results", "hosted: left no results")
    assert gate.code(found, {}) == 4


def test_a_row_without_a_result_says_how_to_get_one(small, tmp_path: Path) -> None:
    """A sign-off reads no row that does not: it was refused as a whole wherever evidence was missing."""
    ((job, cells),) = made(small)
    named = replace(job, candidates=("0.32.0=/a b@0.32.0",))
    (release, *_), (candidate, *_) = (
        collect(((one, cells),), tmp_path / "nothing").rows[Side.HOSTED] for one in (job, named)
    )
    assert release.repro == f"runner repro {release.id}"
    if candidate.axes["vllm"] == "0.32.0":
        assert candidate.repro == f"runner repro --candidate '0.32.0=/a b@0.32.0' {candidate.id}"
    assert {row.state for row in (release, candidate)} == {State.NOT_RUN}
    assert facts.options_of(release) == ()


def test_a_job_that_no_machine_took_is_missing_evidence(world, tmp_path: Path) -> None:
    plan, runs = world
    (runs / "run-sm90-1").rename(tmp_path / "gone")
    asker = asked_by(1, sm90="queued", hosted="success")
    found = collect(plan, runs, asker)
    assert states(found, Side.DEVICE) == {State.SKIPPED}
    assert gate.code(found, {}) == 0
    assert gate.missing(found) == ["missing evidence: sm90 on a GPU, 16 cells: no machine took the job in time"]
    strict = gather.gather(plan, runs, results.read, asker, required=True)
    assert gate.code(strict, {}) == 3, "where the evidence is required, that it is missing is trouble"


def test_where_evidence_of_a_gpu_is_required_a_plan_without_machines_is_red(world) -> None:
    plan, runs = world
    hosted = tuple(one for one in plan if one[0].side is Side.HOSTED)
    asker = asked_by(1, hosted="success")
    found = gather.gather(hosted, runs / "run-hosted-1", results.read, asker, required=True)
    assert "the plan has no job that could give it" in found.troubles[0]
    assert gate.code(found, {}) == 3


def test_a_machine_that_was_busy_is_told_from_one_that_is_offline(world, tmp_path: Path) -> None:
    plan, _ = world
    (job, cells), hosted = plan
    busy = ((replace(job, busy="lab1, lab2"), cells), hosted)
    found = collect(busy, tmp_path / "nothing", asked_by(1, sm90="queued", hosted="success"))
    assert "no machine took the job in time: lab1, lab2 ran other jobs" in gate.missing(found)[0]
    offline = ((replace(job, offline="offline: lab1"), cells), hosted)
    assert gate.missing(collect(offline, tmp_path / "nothing", asked_by(1)))[0].endswith("offline: lab1")


@pytest.mark.parametrize("how", ["failure", "cancelled", "timed_out"])
def test_a_job_that_failed_with_only_green_rows_is_red_and_says_so(world, how: str) -> None:
    """Such as one that was run again and whose machine died: what an older attempt left does not count."""
    plan, runs = world
    found = collect(plan, runs, asked_by(2, sm90="success", hosted=how))
    assert states(found, Side.HOSTED) == {State.NOT_RUN}
    assert states(found, Side.DEVICE) == {State.PASS}
    assert found.troubles == (f"hosted: ended as {how}, and no result says why: its results do not count",)
    assert gate.code(found, {}) == 4


def test_a_job_that_is_run_again_and_is_never_taken_does_not_pass_on_what_it_left_before(world) -> None:
    plan, runs = world
    found = collect(plan, runs, asked_by(2, sm90="queued", hosted="success"))
    assert states(found, Side.DEVICE) == {State.SKIPPED}


def test_what_a_dead_job_left_red_stays_red(world) -> None:
    plan, runs = world
    changed(runs / "run-hosted-1", 0, state=State.FAIL, verdict=Verdict.FAIL)
    for how in ("failure", "queued"):
        found = collect(plan, runs, asked_by(2, sm90="success", hosted=how))
        assert (found.rows[Side.HOSTED][0].state, gate.code(found, {})) == (State.FAIL, 1)


def test_one_run_alone_lies_in_the_path_itself(world, tmp_path: Path) -> None:
    """As download-artifact leaves it where one artifact matches."""
    plan, runs = world
    hosted = tuple(one for one in plan if one[0].name == "hosted")
    found = collect(hosted, runs / "run-hosted-1", asked_by(1, hosted="success"))
    assert (states(found, Side.HOSTED), found.troubles, found.came[0].attempt) == ({State.PASS}, (), 1)


def test_a_device_job_in_parts(small) -> None:
    found = jobs.make(small, Asked(tier=TIER, machines={"sm90": 2, "sm100": 1}))
    assert [job.name for job, _ in found] == ["sm90_1", "sm90_2", "sm100", "hosted"]
    assert {job.runs_on for job, _ in found[:2]} == {("self-hosted", "gpu-release", "sm90")}, "any machine takes any"
    ids = [one.cell.id for _, plan in found[:2] for one in plan.planned]
    assert len(ids) == len(set(ids)) == 16
    assert asking.machines("sm90:2, sm100") == {"sm90": 2, "sm100": 1}
    for text in ("sm90:0", "sm90:x", "sm90:100"):
        with pytest.raises(UsageError, match="the number of jobs, 1 to 99"):
            asking.machines(text)


def test_the_newest_attempt_counts(world) -> None:
    plan, runs = world
    changed(runs / "run-hosted-1", 0, state=State.FAIL, verdict=Verdict.FAIL)
    assert gate.code(collect(plan, runs), {}) == 1
    put(runs / "run-hosted-10", [replace(row, state=State.PASS, verdict=Verdict.PASS)
                                 for row in results.read(runs / "run-hosted-1")])  # fmt: skip
    put(runs / "run-hosted-9", [])
    found = collect(plan, runs)
    assert gate.code(found, {}) == 0
    assert found.came[1].attempt == 10


def passed_all(runs: Path):
    return [replace(row, state=State.PASS, verdict=Verdict.PASS) for row in results.read(runs / "run-hosted-1")]


def test_job_and_attempt_are_what_the_run_says_and_not_what_its_name_says(world) -> None:
    """The second attempt failed; an older run under a newer name does not take its place."""
    plan, runs = world
    good = passed_all(runs)
    (runs / "run-hosted-1").rename(runs / "run-sm90-9")
    put(runs / "run-sm90-9", good, attempt=1, job="hosted")
    put(runs / "any name", good, attempt=2, job="hosted")
    changed(runs / "any name", 0, attempt=2, job="hosted", state=State.FAIL, verdict=Verdict.FAIL)
    found = collect(plan, runs, asked_by(2))
    assert found.came[1].attempt == 2
    assert found.rows[Side.HOSTED][0].state is State.FAIL
    assert found.troubles == ()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"attempt": 3}, "run-hosted-3 says that it is of attempt 3, and this is 2: it does not count"),
        ({"attempt": 0}, "run-hosted-3 says that it is of attempt 0, and this is 2: it does not count"),
        ({"attempt": 2, "workflow": 5}, "run-hosted-3 is of workflow run 5, and this is 77: it does not count"),
        ({"attempt": 1}, "run-hosted-1 and run-hosted-3 say that they are of attempt 1 at the job hosted: none counts"),
        ({"attempt": 2, "job": "x"}, "run-hosted-3 is of the job 'x', which the plan has not: left out"),
    ],
)
def test_what_cannot_be_an_attempt_at_this_workflow_run_does_not_count(world, said: dict[str, Any], words: str) -> None:
    plan, runs = world
    put(runs / "run-hosted-3", passed_all(runs), **said)
    changed(runs / "run-hosted-1", 0, state=State.FAIL, verdict=Verdict.FAIL)
    found = collect(plan, runs, asked_by(2))
    assert words in found.troubles
    assert gate.code(found, {}) in {1, 3, 4}
    assert found.rows[Side.HOSTED][0].state in {State.FAIL, State.NOT_RUN}


def test_a_run_without_a_record_of_its_attempt_does_not_count(world) -> None:
    plan, runs = world
    (runs / "run-hosted-1" / "run.json").unlink()
    found = collect(plan, runs)
    assert "run-hosted-1: has no run.json" in found.troubles[0]
    assert states(found, Side.HOSTED) == {State.NOT_RUN}


def test_a_hosted_job_that_claims_a_device_is_not_believed(world) -> None:
    plan, runs = world
    changed(runs / "run-hosted-1", 3, evidence=Evidence.DEVICE)
    found = collect(plan, runs)
    row = found.rows[Side.HOSTED][3]
    assert (row.state, row.evidence) == (State.MISSING, Evidence.EMULATED)
    assert "not believed" in row.reason
    assert gate.code(found, {}) == 3


def test_a_gpu_machine_that_emulated_gives_no_evidence(world) -> None:
    plan, runs = world
    changed(runs / "run-sm90-1", 0, evidence=Evidence.EMULATED)
    row = collect(plan, runs).rows[Side.DEVICE][0]
    assert (row.state, row.evidence) == (State.SKIPPED, Evidence.DEVICE)
    assert row.reason == "the machine showed no sm90 GPU: it ran emulated"


def test_results_that_a_job_was_not_asked_for_are_left_out_and_said(world) -> None:
    plan, runs = world
    changed(runs / "run-hosted-1", 0, id="0.99.0-made-up")
    found = collect(plan, runs)
    assert "1 result of cells that it was not asked for, as '0.99.0-made-up'" in found.troubles[0]
    assert found.rows[Side.HOSTED][0].state is State.NOT_RUN
    assert len(found.rows[Side.HOSTED]) == 32


def test_results_that_cannot_be_read_are_machine_trouble(world) -> None:
    plan, runs = world
    (runs / "run-hosted-1/results.json").write_text("[{}]")
    found = collect(plan, runs)
    assert "not the results of a run" in found.troubles[0]
    assert states(found, Side.HOSTED) == {State.NOT_RUN}


def test_what_is_written_is_read_back(world, small, tmp_path: Path) -> None:
    plan, runs = world
    gather.keep_plan(tmp_path / "plan", plan, Path("matrix.yaml"), small)
    assert gather.kept_plan(tmp_path / "plan") == plan
    found = collect(plan, runs)
    gather.keep(tmp_path / "merged", found, tmp_path / "plan", title="nightly")
    assert gather.kept(tmp_path / "merged") == found
    for side, cells in (("device", 16), ("hosted", 32)):
        place = tmp_path / "merged" / side
        assert len(json.loads((place / "plan.json").read_text())) == cells
        assert (place / "matrix.yaml").exists()
        assert (place / "junit.xml").exists()
    with pytest.raises(UsageError, match="`runner ci plan --out DIR` writes it"):
        gather.kept_plan(tmp_path)
    with pytest.raises(UsageError, match="`runner ci gather` writes it"):
        gather.kept(tmp_path)


@pytest.mark.parametrize(
    ("needs", "code"),
    [
        ({}, 0),
        ({"plan": "success", "hosted": "success", "wait": "skipped"}, 0),
        ({"plan": "success", "hosted": "failure"}, 0),  # its results were judged before, by how it ended
        ({"plan": "success", "hosted": "cancelled"}, 3),
        ({"plan": "failure"}, 3),
        ({"plan": "skipped"}, 3),
    ],
)
def test_how_the_jobs_before_it_came_out_counts(world, needs: dict[str, str], code: int) -> None:
    plan, runs = world
    read = gate.needs(json.dumps({name: {"result": result, "outputs": {}} for name, result in needs.items()}))
    found = collect(plan, runs)
    assert gate.code(found, read) == code
    assert gate.lines(found, read)[-1].startswith(f"exit {code}:")


def test_product_trouble_wins_over_all_else(world) -> None:
    plan, runs = world
    changed(runs / "run-hosted-1", 0, state=State.CRASH, verdict=Verdict.CRASH)
    assert gate.code(collect(plan, runs), gate.needs('{"hosted": {"result": "cancelled"}}')) == 1


def test_the_plan_of_the_calling_workflow_is_needed_too() -> None:
    found = gate.needs('{"hosted": {"result": "success"}}', '{"result": "failure", "outputs": {}}')
    assert list(gate.broken(found)) == ["the job plan ended as failure"]


def test_needs_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError, match="toJSON"):
        gate.needs("[1]")


def test_a_refusal_where_another_job_saw_the_release_before_pass_is_red(small) -> None:
    """Each job judged its own cells, and the matrix names the reason for all releases alike."""
    entry = matrix.Expectation(selector=EVERYTHING, refusal="not here", because="so it is")
    chart = replace(small, axes={**small.axes, "vllm": ("0.31.0", "0.32.0")}, expect=(entry,))
    refused = cell(State.REFUSED, reason="not here", expected="so it is")
    for before, verdict, code in ((State.PASS, Verdict.UNEXPECTED, 1), (State.FAIL, Verdict.REFUSED, 1)):
        rows = (cell(before, axes={"vllm": "0.31.0"}), refused)
        found = gather.judged(gather.Gathered(came=(), rows={Side.HOSTED: rows}), chart)
        assert found.rows[Side.HOSTED][1].verdict is verdict
        assert gate.code(found, {}) == code
    assert gather.judged(found, replace(chart, expect=())).rows[Side.HOSTED][1].verdict is Verdict.UNEXPECTED


def test_a_candidate_is_refused_as_rightly_as_the_release_that_it_is_over(world, small, tmp_path: Path) -> None:
    """The matrix of a plan is read back with the candidates of the plan."""
    text = Path("matrix.yaml").read_text()
    expected = 'expect:\n  - {where: {vllm: "0.32.0"}, refusal: not here today, because: so it is}\n'
    Path("matrix.yaml").write_text(text.replace("tiers:\n", f"{expected}tiers:\n"))
    fix = Candidate(name="fix", kind=CandidateKind.WHEEL, path="fix.whl", over="0.32.0", digest="0" * 16)
    chart = candidates.join(matrix.load(Path("matrix.yaml")), [fix])
    gather.keep_plan(tmp_path / "plan", world[0], Path("matrix.yaml"), chart)
    kept = gather.kept_chart(tmp_path / "plan")
    assert kept.before == {"fix": "0.32.0"}
    refused = replace(cell(State.REFUSED, reason="not here today"), verdict=Verdict.REFUSED)
    of_fix = replace(refused, axes={**refused.axes, "vllm": "fix"})
    found = gather.judged(gather.Gathered(came=(), rows={Side.HOSTED: (of_fix,)}), kept)
    assert [row.verdict for row in found.rows[Side.HOSTED]] == [Verdict.REFUSED]


def test_the_gate_is_red_for_a_refusal_that_nobody_expects(world) -> None:
    plan, runs = world
    changed(runs / "run-hosted-1", 0, state=State.REFUSED, verdict=Verdict.UNEXPECTED, cases=(), reason="not here")
    found = collect(plan, runs)
    assert gate.code(found, {}) == 1
    assert "1 refused!" in "\n".join(gate.lines(found, {}))
