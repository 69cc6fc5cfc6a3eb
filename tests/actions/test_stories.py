"""Our workflows, executed: each story ends as it should. Real vLLM where cells run."""

import hashlib
import io
import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runner import results
from runner.engines.local import marked
from runner.environments import venv
from runner.signoff import verify
from tests.actions.conftest import EXCLUDED, ONE_PASSES, OVERFLOWS, OWN, PASSES, PROJECT, SECRETS, Build, gpu_machine
from tests.actions.events import MAIN, MERGED, pull_request
from tests.actions.harness import Event, Job, Run
from tests.actions.played import MOST_DAYS

pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]

GATE = "matrix / gate"
HOSTED = "matrix / hosted (hosted)"
SMALL = f"""\
about: what the story runs
max_age_days: 30
require:
  - name: what the story runs
    cells: {json.dumps(ONE_PASSES)}
    evidence: emulated
    because: there is no GPU
"""
PLAN, NIGHTLY, RELEASE = "plan / plan", "nightly / gate", "release / gate"


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
    github = build(tree("main", ONE_PASSES))
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
    assert told(run)[NIGHTLY] == "failure", "the night is for evidence of GPUs too"
    assert "device / device (sm100)" not in told(run), "no job waits for a machine that is known to be offline"
    assert told(run)["device / device (sm90)"] == "failure", "it had no GPU"
    assert told(run)["nightly / wait"] == "failure"
    gate = run.job(NIGHTLY)
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
    github = build(tree("main", ONE_PASSES), gpu_machine("sm100", online=False), secrets={})
    run = github.trigger("matrix-nightly.yml", Event("schedule", MAIN, "refs/heads/main"))
    assert run.job("device / device (sm100)").status == "queued"
    assert "sm100: no machine took it within" in run.job("nightly / wait").log
    assert told(run)[NIGHTLY] == "failure", run.job(NIGHTLY).log
    assert told(run)["report"] == "success", "nothing but the device job itself is still queued"
    assert run.in_progress
    assert "missing evidence: sm100 on a GPU, 1 cell: no machine took the job in time" in run.job(NIGHTLY).summary


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
    github = build(tree("main", ONE_PASSES))
    inputs = {"vllm": "0.32.0", "policy": "metadata"}
    run = github.trigger("release-signoff.yml", Event("workflow_dispatch", MAIN, "refs/heads/main", inputs=inputs))
    assert told(run)[RELEASE] == "success", run.job(RELEASE).log
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
    assert "signoff-asset" not in run.artifacts | again.artifacts

    # A policy that asks for what there is says GO, and the release of that tag keeps the bundle.
    (github.trees[OWN, MAIN] / "policies/small.yaml").write_text(SMALL)
    inputs = {**inputs, "policy": "small", "alone": True, "release_tag": "v1.0", "retention_days": "400"}
    shipped = github.trigger("release-signoff.yml", Event("workflow_dispatch", MAIN, "refs/heads/main", inputs=inputs))
    assert told(shipped) == {"signoff": "success", "asset": "failure"}, [job.log for job in shipped.all_jobs]
    assert "release not found" in shipped.job("asset").log
    github.releases = {"v1.0": {}}
    shipped.rerun_job("asset")
    assert told(shipped) == {"signoff": "success", "asset": "success"}, shipped.job("asset").log
    archive, attestation = (f"signoff-{shipped.number}-1.{end}" for end in ("tar", "sigstore.json"))
    kept = github.releases["v1.0"]
    assert set(kept) == {archive, attestation}
    assert json.loads(kept[attestation])[archive] == hashlib.sha256(kept[archive]).hexdigest(), "it is attested itself"
    with tarfile.open(fileobj=io.BytesIO(kept[archive])) as tar:
        tar.extractall(github.folder, filter="data")
    sums = (github.folder / "bundle/SHA256SUMS").read_bytes()
    assert sums == (shipped.artifacts["signoff"] / "SHA256SUMS").read_bytes()
    found = verify.verify(github.folder / "bundle", now=datetime.now(UTC))
    assert (found.findings, found.decision) == ((), "GO")
    assert shipped.kept_days["signoff"] == MOST_DAYS, "400 days are more than the repository's settings allow"


def runs_of(run) -> list[str]:
    """The results that a sign-off rests on."""
    return [path.read_text() for path in (run.artifacts["signoff"] / "inputs" / "runs").glob("*/results.json")]


def test_the_environments_of_the_tests_are_there() -> None:
    """Or the stories above would build one each."""
    assert (PROJECT / venv.ROOT).is_dir()
