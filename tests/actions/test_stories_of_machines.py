"""Our workflows, executed: machines that are busy, offline, back or dead, and what gate and sign-off make of it.

There is no GPU here: a machine "with" one shows none, so its cells are skipped for that reason, which tells its results
from those of a machine that never took the job.
"""

import shutil
from pathlib import Path

import pytest

from runner import results
from runner.model import Evidence
from tests.actions.conftest import EXCLUDED, OWN, Build, gpu_machine
from tests.actions.events import HEAD, MAIN, MERGED, dispatched, ended, pull_request
from tests.actions.harness import Event, Machine, Run
from tests.commits import commit, git

pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]

GATE, HOSTED = "matrix / gate", "matrix / hosted (hosted)"
NIGHT = Event("schedule", MAIN, "refs/heads/main")
ON_SM100 = ("flash_attn", "sm100", "hybrid=on", "spec_k=0", "chunk=64", "load=solo")
NO_GPU = "there is no sm100 device here"


def told(run: Run) -> dict[str, str | None]:
    return {job.name: job.conclusion for job in run.all_jobs}


def rows(place: Path) -> list:
    return list(results.read(place))


def machine(**about: bool) -> Machine:
    made = gpu_machine("sm100", online=about.get("online", True))
    made.busy = about.get("busy", False)
    made.env["ATTNMATRIX_CUDA_PYTHON"] = "/usr/bin/python3"
    return made


def test_a_merge_queue_gets_the_required_check_and_so_does_a_pull_request_of_docs_alone(tree, build: Build) -> None:
    """The queue makes a branch of its own, and waits for the check of that name; it runs all there is."""
    github = build(tree("main", EXCLUDED))
    github.trees[OWN, MERGED] = merge_of_docs(github.trees[OWN, MAIN])
    queue = Event("merge_group", MERGED, "refs/heads/gh-readonly-queue/main/pr-7-abc", {"action": "checks_requested"})
    run = github.trigger("matrix-pr.yml", queue)
    assert (told(run)[HOSTED], told(run)[GATE]) == ("success", "success"), run.job(GATE).log
    free = github.trigger("matrix-pr.yml", pull_request())
    assert run.concurrency != free.concurrency
    assert told(free) == {
        "plan / plan": "success", "matrix / hosted": "skipped", "matrix / wait": "skipped", GATE: "success",
    }, free.job("plan / plan").log  # fmt: skip
    assert "no cell was judged: only documentation changed" in free.job(GATE).summary


def merge_of_docs(main: Path) -> Path:
    """A test merge commit of a pull request that corrects one page."""
    place = main.with_name("docs_alone")
    shutil.copytree(main, place, symlinks=True)
    git(place, "init", "--quiet", "--initial-branch", "main")
    commit(place)
    git(place, "checkout", "--quiet", "-b", "topic")
    with (place / "docs/cases.md").open("a") as page:
        page.write("\nA typo less.\n")
    commit(place)
    git(place, "checkout", "--quiet", "main")
    git(place, "merge", "--quiet", "--no-ff", "--no-edit", "topic")
    return place


def test_a_plan_that_fails_leaves_a_gate_that_is_red(tree, build: Build) -> None:
    github = build(tree("main", EXCLUDED))
    (github.trees[OWN, MAIN] / "matrix.yaml").write_text("axes: {}\n")
    run = github.trigger("matrix-nightly.yml", NIGHT)
    assert told(run) == {
        "plan / plan": "failure", "nightly / hosted": "skipped", "nightly / wait": "skipped",
        "nightly / gate": "failure", "report": "success",
    }  # fmt: skip
    assert github.issues == []


def test_green_at_first_and_dead_when_run_again_is_red(tree, build: Build) -> None:
    """Somebody runs all again, and the machine of the second attempt dies: the first one's artifact is still there. One
    comment says how it stands."""
    github = build(tree("main", ON_SM100))
    github.trees[OWN, MERGED] = github.trees[OWN, MAIN]
    github.heads = {7: HEAD}
    run = github.trigger("matrix-pr.yml", pull_request())
    assert told(run)[GATE] == "success", run.job(GATE).log
    after = github.trigger("matrix-after.yml", ended(run))
    assert told(after) == {"tell": "success", "again": "skipped"}, after.job("tell").log
    ((pull, text),) = github.comments
    assert pull == 7
    assert f"**`matrix-pr` is green** for `{HEAD}`: [the run](https://github.com/{OWN}/actions/runs/1)." in text
    assert "**exit 0: everything as expected**" in text
    assert set(run.artifacts) == {"plan", "merged", "run-hosted-1"}, "one run: it lies in the path itself"

    run.dies = frozenset({HOSTED})
    run.rerun_all()
    assert (told(run)[HOSTED], told(run)[GATE]) == ("failure", "failure")
    assert "run-hosted-2" not in run.artifacts
    gate = run.job(GATE)
    assert "hosted: ended as failure, and no result says why: its results do not count" in gate.summary
    assert {row.state for row in rows(run.artifacts["merged"] / "hosted")} == {"not_run"}
    github.trigger("matrix-after.yml", ended(run))
    ((_, text),) = github.comments
    assert "**`matrix-pr` is red**" in text
    assert "attempt 2." in text


def test_two_jobs_lie_in_folders_and_none_is_no_error(tree, build: Build) -> None:
    """A machine that shows no GPU and a hosted one: two artifacts. It is tried once more, and dies: none is left."""
    github = build(tree("main", ON_SM100), machine())
    run = github.trigger("matrix-nightly.yml", NIGHT)
    assert {"run-sm100-1", "run-hosted-1"} <= set(run.artifacts)
    assert {row.reason.partition(":")[0] for row in rows(run.artifacts["merged"] / "device")} == {NO_GPU}
    assert {row.state for row in rows(run.artifacts["merged"] / "hosted")} == {"pass"}

    after = github.trigger("matrix-after.yml", ended(run))
    assert told(after) == {"tell": "skipped", "again": "success"}, after.job("again").log
    assert "sm100: 1 cell without evidence: there is no sm100 device here" in after.job("again").log
    run.dies = frozenset({"device / device (sm100)"})
    run.artifacts = {"plan": run.artifacts["plan"]}
    assert github.go_on() is run
    attempts = {job.name: job.attempt for job in run.all_jobs}
    assert {name for name, attempt in attempts.items() if attempt == 2} == {
        "device / device (sm100)", "nightly / wait", "nightly / gate", "report",
    }, "what was red, and what needs it"  # fmt: skip
    assert told(github.trigger("matrix-after.yml", ended(run)))["again"] == "skipped", "once"
    assert github.asked == []
    assert told(run)["nightly / gate"] == "failure"
    assert "hosted: left no results" in run.job("nightly / gate").log


def test_a_machine_that_is_offline_makes_the_night_red_and_an_issue(tree, build: Build) -> None:
    github = build(tree("main", ON_SM100), machine(online=False))
    run = github.trigger("matrix-nightly.yml", NIGHT)
    assert "device / device (sm100)" not in told(run), "no job waits for a machine that is known to be offline"
    assert told(run)["nightly / gate"] == "failure"
    assert "missing evidence: sm100 on a GPU, 1 cell: offline: lab-sm100" in run.job("nightly / gate").summary
    (issue,) = github.issues
    assert "lab-sm100" in issue["body"]
    assert f"/runs/{run.number}" in issue["body"]
    again = github.trigger("matrix-nightly.yml", NIGHT)
    assert len(github.issues) == 1, "it is brought up to date, and no other is opened"
    assert f"/runs/{again.number}" in github.issues[0]["body"]


def test_a_machine_that_is_busy_holds_nothing_and_what_it_gives_late_is_signed_off(tree, build: Build) -> None:
    """It is busy past the wait, and back at minute 40: sign-off has decided by then, and decides again, alone."""
    lab = machine(busy=True)
    github = build(tree("main", ON_SM100), lab)
    inputs = {"vllm": "0.32.0", "policy": "metadata"}
    first = github.trigger("release-signoff.yml", dispatched("main", inputs))
    assert first.job("device / device (sm100)").status == "queued"
    assert first.in_progress, "GitHub waits for the machine"
    assert "lab-sm100 ran other jobs" in first.job("release / gate").log
    assert first.job("signoff").status == "completed", "and sign-off does not"
    assert "NO-GO" in first.job("signoff").log
    assert "no machine took the job in time" in reason(first)

    early = github.trigger("release-signoff.yml", dispatched("main", {**inputs, "alone": True, "earlier": "1"}))
    assert told(early) == {"signoff": "failure", "asset": "skipped"}
    assert "the run 1 is not taken: it is 'in_progress'" in early.job("signoff").log

    lab.busy = False
    first.machine_is_back()
    assert not first.in_progress
    late = github.trigger("release-signoff.yml", dispatched("main", {**inputs, "alone": True, "earlier": "1"}))
    assert told(late) == {"signoff": "failure", "asset": "skipped"}, "no cell ran again; it is decided"
    assert "NO-GO" in late.job("signoff").log
    assert NO_GPU in reason(late), "by what the machine gave late"

    first.rerun_job("signoff")
    assert first.job("release / gate").attempt == 1
    assert NO_GPU in reason(first), "and so does that sign-off itself, run again alone"


def reason(run: Run) -> str:
    """Of the only cell with evidence of a device, among the results that a sign-off rests on."""
    found = [
        row
        for path in (run.artifacts["signoff"] / "inputs" / "runs").glob("*/results.json")
        for row in results.read(path.parent)
        if row.evidence is Evidence.DEVICE
    ]
    (row,) = found
    return str(row.reason)


@pytest.mark.parametrize(
    ("earlier", "words"), [("1", "it is of 'matrix-pr.yml'"), ("99", "Not Found: run 99"), ("x; id", "is no number")]
)
def test_a_sign_off_takes_no_run_of_another_workflow(tree, build: Build, earlier: str, words: str) -> None:
    github = build(tree("main", EXCLUDED))
    github.trees[OWN, MERGED] = github.trees[OWN, MAIN]
    github.trigger("matrix-pr.yml", pull_request())
    inputs = {"vllm": "0.32.0", "policy": "metadata", "alone": True, "earlier": earlier}
    alone = github.trigger("release-signoff.yml", dispatched("main", inputs))
    assert alone.attested == []
    assert words in alone.job("signoff").log
