"""Our workflows, executed: each story ends as it should. Real vLLM where cells run."""

import json
import re
from pathlib import Path

import pytest

from runner import results
from runner.engines.local import marked
from runner.environments import venv
from tests.actions.conftest import (
    EXCLUDED,
    OVERFLOWS,
    OWN,
    PASSES,
    PROJECT,
    SECRETS,
    Build,
    gpu_machine,
)
from tests.actions.events import HEAD, MAIN, MERGED, MERGED_LATER, PUSHED, pull_request
from tests.actions.harness import Event, Job, Run

pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]

GATE = "matrix / gate"
HOSTED = "matrix / hosted (hosted)"
PLAN = "plan / plan"


def told(run: Run) -> dict[str, str | None]:
    """The conclusion of each job, for a failed story to show."""
    return {job.name: job.conclusion for job in run.all_jobs}


def rows(run: Run, side: str) -> list:
    return list(results.read(run.artifacts["merged"] / side))


def test_a_pull_request_is_green(tree, build: Build) -> None:
    github = build(tree("main", PASSES))
    github.trees[OWN, MERGED] = github.trees[OWN, MAIN]
    run = github.trigger("matrix-pr.yml", pull_request())
    assert told(run) == {
        PLAN: "success",
        HOSTED: "success",
        "matrix / wait": "skipped",
        GATE: "success",
    }, "\n".join(job.log for job in run.all_jobs)
    gate = run.job(GATE)
    assert gate.summary.startswith("# Attention matrix: `pr`\n\n**exit 0: everything as expected**")
    assert "nothing to say" in gate.log
    assert [line for line in gate.annotations if not line.startswith("::notice")] == []
    assert {(row.axes["arch"], row.state, row.evidence) for row in rows(run, "hosted")} == {
        ("sm90", "pass", "emulated"),
        ("sm100", "pass", "emulated"),
    }
    assert {"plan", "merged", "run-hosted-1"} == set(run.artifacts)
    merged = run.artifacts["merged"] / "hosted"
    assert (merged / "junit.xml").read_text().count("<testcase ") == 2
    assert len(github.cache_keys) == 1
    assert all(SECRETS["RUNNERS_TOKEN"] not in text for job in run.all_jobs for text in job.seen_by_steps)


def test_a_pull_request_that_overruns_a_buffer_is_red(tree, build: Build) -> None:
    github = build(tree("main", OVERFLOWS, known=False))
    github.trees[OWN, MERGED] = github.trees[OWN, MAIN]
    run = github.trigger("matrix-pr.yml", pull_request())
    assert (told(run)[HOSTED], told(run)[GATE]) == ("failure", "failure"), run.job(HOSTED).log
    gate = run.job(GATE)
    assert "**exit 1: product trouble" in gate.summary.splitlines()[2]
    assert gate.annotations[0].startswith("::error title=overflow ")
    assert len(gate.annotations) <= 10
    assert "runner repro" in gate.annotations[0]
    assert [row.state for row in rows(run, "hosted")] == ["overflow"]


def test_a_cancelled_job_ends_its_cells_and_runs_again_alone(tree, build: Build) -> None:
    github = build(tree("main", PASSES))
    github.trees[OWN, MERGED] = github.trees[OWN, MAIN]

    def a_worker_has_started(job: Job) -> bool:
        journal = job.folder / "temp/run-run-hosted-1/events.jsonl"
        return job.name == HOSTED and journal.exists() and '"worker_starting"' in journal.read_text()

    before = {pid for pid, _ in marked()}
    run = github.trigger("matrix-pr.yml", pull_request(), cancel_when=a_worker_has_started)
    assert (told(run)[HOSTED], told(run)[GATE]) == ("cancelled", "failure"), run.job(HOSTED).log
    mine = [pid for pid, _ in marked() if pid not in before and str(github.folder) in _home(pid)]
    assert not mine, "a cell goes on after its job was cancelled"
    assert "the job hosted ended as cancelled" in run.job(GATE).summary
    assert {row.state for row in rows(run, "hosted")} == {"not_run"}

    plan_before, run.cancel_when = run.job(PLAN), None
    run.rerun_failed()
    assert (told(run)[HOSTED], told(run)[GATE]) == ("success", "success"), run.job(HOSTED).log
    assert run.job(PLAN) is plan_before, "what went well is not run again"
    assert {"run-hosted-2"} <= set(run.artifacts)
    assert {row.state for row in rows(run, "hosted")} == {"pass"}
    assert "attempt 2" in run.job(GATE).summary


def _home(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def test_a_machine_that_is_offline_is_missing_evidence_and_no_hang(tree, build: Build) -> None:
    """One is known to be offline, and one is online but has no GPU: both leave evidence missing, said everywhere."""
    github = build(tree("main", PASSES), gpu_machine("sm90"), gpu_machine("sm100", online=False))
    github.machines[1].env["ATTNMATRIX_CUDA_PYTHON"] = "/usr/bin/python3"
    run = github.trigger("matrix-nightly.yml", Event("schedule", MAIN, "refs/heads/main"))
    assert told(run)[GATE] == "success", run.job(GATE).log
    assert "matrix / device (sm100)" not in told(run), "no job waits for a machine that is known to be offline"
    assert told(run)["matrix / device (sm90)"] == "failure", "it had no GPU"
    assert told(run)["matrix / wait"] == "failure"
    gate = run.job(GATE)
    assert "missing evidence: sm100 on a GPU, 1 cell: offline: lab-sm100" in gate.summary
    assert "missing evidence: sm90 on a GPU, 1 cell: there is no sm90 device here" in gate.summary
    assert sum("missing evidence" in line for line in gate.annotations) == 2
    assert {row.state for row in rows(run, "device")} == {"skipped"}
    assert {row.state for row in rows(run, "hosted")} == {"pass"}
    plan = run.job(PLAN)
    assert any(SECRETS["RUNNERS_TOKEN"] in text for text in plan.seen_by_steps)
    others = [text for job in run.all_jobs if job is not plan for text in job.seen_by_steps]
    assert all(SECRETS["RUNNERS_TOKEN"] not in text for text in others), "secrets are absent where cells run"


def test_a_job_that_no_machine_takes_is_not_waited_for(tree, build: Build) -> None:
    """Nobody may ask which machines are online: the job is queued, and the gate answers without it."""
    github = build(tree("main", PASSES), gpu_machine("sm100", online=False), secrets={})
    run = github.trigger("matrix-nightly.yml", Event("schedule", MAIN, "refs/heads/main"))
    assert run.job("matrix / device (sm100)").status == "queued"
    assert "sm100: no machine took it within" in run.job("matrix / wait").log
    assert told(run)[GATE] == "success", run.job(GATE).log
    assert "missing evidence: sm100 on a GPU, 1 cell: no machine took the job in time" in run.job(GATE).summary


STEAL = """\
  steal:
    runs-on: [self-hosted, gpu, sm90]
    permissions: {}
    steps:
      - run: touch PWNED; env
"""
HOSTILE = "$(touch PWNED) `touch PWNED` '; touch PWNED; \" ${{ github.token }} ::set-env name=X::y\n::error::pwned"


def test_a_hostile_pull_request_reaches_no_machine_and_runs_nothing_of_its_words(tree, build: Build) -> None:
    """Its workflow asks for a GPU machine, and its names and texts are full of shell, expressions and commands."""
    github = build(tree("main", EXCLUDED), gpu_machine("sm90"))
    theirs = tree("theirs", EXCLUDED)
    workflow = theirs / ".github/workflows/matrix-pr.yml"
    workflow.write_text(workflow.read_text() + STEAL)
    text = (theirs / "matrix.yaml").read_text()
    because = "GPU backends are judged on GPU archs; vLLM's CPU platform serves cpu_attn"
    assert text.count(because) == 1
    (theirs / "matrix.yaml").write_text(text.replace(f"because: {because}", f"because: {json.dumps(HOSTILE)}"))
    (theirs / "$(touch PWNED); `touch PWNED`.py").write_text("")
    github.trees[OWN, MERGED] = theirs
    event = pull_request()
    event.payload["pull_request"]["title"] = HOSTILE
    event.payload["pull_request"]["head"]["ref"] = "x$(touch${IFS}PWNED)"
    run = github.trigger("matrix-pr.yml", event)
    steal = run.job("steal")
    assert steal.conclusion == "failure"
    assert steal.seen_by_steps == [], "no step of it ran"
    assert "pull request 7 was 'opened'" in steal.log
    assert told(run)[GATE] == "success", run.job(GATE).log
    assert not list(github.folder.rglob("PWNED"))
    for job in run.all_jobs:
        assert job.annotations == [], "words of the pull request became a command to GitHub"
        assert all(secret not in text for secret in SECRETS.values() for text in job.seen_by_steps)
    summary = run.job(GATE).summary
    assert "touch PWNED" in summary, "the reason is shown"
    assert all(line.count("`") >= 2 for line in summary.splitlines() if "PWNED" in line), "and only as code"


@pytest.mark.parametrize(
    ("sender", "conclusion", "says"),
    [
        ("maintainer", "failure", f"pull request 7 at {HEAD}, as maintainer authorised"),  # red: no GPU is here
        ("stranger", "failure", "'stranger' put the label, and is none of bob, maintainer"),
    ],
)
def test_a_label_authorises_one_commit(tree, build: Build, sender: str, conclusion: str, says: str) -> None:
    github = build(tree("main", PASSES), gpu_machine("sm90"))
    github.trees[OWN, MERGED] = github.trees[OWN, MAIN]
    event = pull_request("labeled", label="gpu", sender=sender)
    # ended before hosted cells: only the machine is looked at here
    github.machines[1].env["ATTNMATRIX_CUDA_PYTHON"] = "/usr/bin/python3"
    run = github.trigger("matrix-gpu.yml", event, cancel_when=lambda job: job.name == HOSTED)
    device = run.job("matrix / device (sm90)")
    assert says in device.log
    assert device.conclusion in {conclusion, "cancelled"}
    assert bool(device.seen_by_steps) is False or sender == "maintainer"


def test_what_is_pushed_after_the_label_is_not_authorised(tree, build: Build) -> None:
    github = build(tree("main", EXCLUDED), gpu_machine("sm90"))
    theirs = tree("theirs", EXCLUDED)
    # their workflow listens to pushes, and asks for the machine
    workflow = theirs / ".github/workflows/matrix-gpu.yml"
    text = workflow.read_text().replace("types: [labeled]", "types: [labeled, synchronize]")
    text = re.sub(r"    if: .*\n    permissions:", "    permissions:", text)
    workflow.write_text(
        text + "  steal:\n    runs-on: [self-hosted, gpu, sm90]\n    permissions: {}\n    steps: [{run: env}]\n"
    )
    github.trees[OWN, MERGED_LATER] = theirs
    run = github.trigger("matrix-gpu.yml", pull_request("synchronize", head=PUSHED, sender="maintainer"))
    assert run.job("steal").conclusion == "failure"
    assert "pull request 7 was 'synchronize'" in run.job("steal").log
    assert run.job("steal").seen_by_steps == []


def test_another_label_runs_nothing(tree, build: Build) -> None:
    github = build(tree("main", PASSES), gpu_machine("sm90"))
    github.trees[OWN, MERGED] = github.trees[OWN, MAIN]
    run = github.trigger("matrix-gpu.yml", pull_request("labeled", label="docs", sender="maintainer"))
    assert told(run) == {}


def test_a_plan_that_cannot_be_made_makes_the_gate_red(tree, build: Build) -> None:
    broken = tree("main", EXCLUDED)
    (broken / "matrix.yaml").write_text("axes: {}\n")
    github = build(broken)
    github.trees[OWN, MERGED] = broken
    run = github.trigger("matrix-pr.yml", pull_request())
    assert (told(run)[PLAN], told(run)[HOSTED.split(" (")[0]], told(run)[GATE]) == (
        "failure", "skipped", "failure",
    )  # fmt: skip
    assert "the job plan ended as failure" in run.job(GATE).summary


def test_a_release_is_signed_off_and_attested(tree, build: Build) -> None:
    """What the policy asks for is not there, so that it is NO-GO: decided, kept and attested all the same."""
    github = build(tree("main", PASSES))
    inputs = {"vllm": "0.32.0", "policy": "metadata"}
    run = github.trigger("release-signoff.yml", Event("workflow_dispatch", MAIN, "refs/heads/main", inputs=inputs))
    assert told(run)[GATE] == "success", run.job(GATE).log
    signoff = run.job("signoff")
    assert signoff.conclusion == "failure", signoff.log
    assert "NO-GO" in signoff.log
    assert "SHA256SUMS" in run.attested
    assert (run.artifacts["signoff"] / "signoff.md").exists()
    assert len(runs_of(run)) == 1

    inputs = {**inputs, "earlier": str(run.number)}
    again = github.trigger("release-signoff.yml", Event("workflow_dispatch", MAIN, "refs/heads/main", inputs=inputs))
    assert "NO-GO" in again.job("signoff").log
    assert len(runs_of(again)) == 2, "what was run before counts too"
    assert runs_of(run)[0] in runs_of(again)


def runs_of(run) -> list[str]:
    """The results that a sign-off rests on."""
    return [path.read_text() for path in (run.artifacts["signoff"] / "inputs" / "runs").glob("*/results.json")]


def test_the_example_works_in_an_empty_repository(tmp_path: Path, tree, build: Build) -> None:
    page = (PROJECT / "docs/self-hosted.md").read_text()
    (example,) = re.findall(r"^```yml\n(# \.github/workflows/attention\.yml\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    commit = re.search(r"uses: (\S+)/\.github/actions/runner@([0-9a-f]{40})", example)
    assert commit
    example = example.replace(
        re.search(r'filter: (".*")', example)[1], json.dumps("0.32.0-flash_attn-sm90-hybrid_on-k0-c64-solo")
    )
    empty = tmp_path / "empty"
    (empty / ".github/workflows").mkdir(parents=True)
    (empty / ".github/workflows/attention.yml").write_text(example)
    github = build(empty)
    github.trees[commit[1], commit[2]] = tree("main", PASSES)
    run = github.trigger("attention.yml", Event("push", MAIN, "refs/heads/main"))
    (job,) = run.all_jobs
    assert job.conclusion == "success", job.log
    assert "exit 0: everything as expected" in job.summary
    (row,) = results.read(run.artifacts["attnmatrix"])
    assert (row.state, row.evidence) == ("pass", "emulated")


def test_the_environments_of_the_tests_are_there() -> None:
    """Or the stories above would build one each."""
    assert (PROJECT / venv.ROOT).is_dir()
