"""Who reaches a machine with a GPU, and who does not: pull requests of strangers, comments, pushes in between."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from runner import results
from tests.actions.conftest import EXCLUDED, OWN, PASSES, PROJECT, SECRETS, Build, gpu_machine
from tests.actions.events import HEAD, MAIN, MERGED, MERGED_LATER, PUSHED, comment, dispatched, pull_request
from tests.actions.harness import GitHub, Run
from tests.answering import answering

pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]

GATE = "matrix / gate"
EVIL = ("evil/actions", "f" * 40)
STEAL = f"""\
  steal:
    runs-on: [self-hosted, gpu-pr, sm90]
    permissions: {{}}
    env:
      GITHUB_WORKFLOW_REF: {OWN}/.github/workflows/matrix-gpu.yml@refs/heads/main
      GITHUB_EVENT_NAME: workflow_dispatch
      GITHUB_REF: refs/heads/main
      GITHUB_REPOSITORY: {OWN}
      BASH_FUNC_exec%%: '() {{ exit 0; }}'
    steps:
      - run: touch PWNED; env
      - if: always()
        run: touch PWNED
      - if: failure()
        run: touch PWNED
      - if: ${{{{ !cancelled() }}}}
        uses: {EVIL[0]}/script@{EVIL[1]}
      - if: always()
        uses: {EVIL[0]}/composite@{EVIL[1]}
"""
HOSTILE = "$(touch PWNED) `touch PWNED` '; touch PWNED; \" ${{ github.token }} ::set-env name=X::y\n::error::pwned"
Tree = Callable[..., Path]


def told(run: Run) -> dict[str, str | None]:
    return {job.name: job.conclusion for job in run.all_jobs}


def actions_of_a_stranger(place: Path) -> Path:
    """One with scripts before, in and after a job, and one that uses it and runs more."""
    script = place / "script"
    script.mkdir(parents=True)
    (script / "action.yml").write_text("runs:\n  using: node20\n  pre: x.js\n  main: x.js\n  post: x.js\n")
    (script / "x.js").write_text("require('fs').writeFileSync('PWNED', '')\n")
    composite = place / "composite"
    composite.mkdir()
    (composite / "action.yml").write_text(
        "runs:\n  using: composite\n  steps:\n"
        f"    - uses: {EVIL[0]}/script@{EVIL[1]}\n"
        "    - if: always()\n      shell: bash\n      run: touch PWNED\n"
    )
    return place


def nothing_ran(github: GitHub, run: Run, name: str = "steal") -> None:
    job = run.job(name)
    assert job.conclusion == "failure"
    assert job.seen_by_steps == [], "no step of it ran"
    assert not list(github.folder.rglob("PWNED"))
    work = job.machine_folder
    assert work.name == "_work"
    assert list(work.iterdir()) == [], "something is left on the machine"


def world(tree: Tree, build: Build, cells: tuple[str, ...] = EXCLUDED, **env: str) -> GitHub:
    """A machine for pull requests, and pull request 7 at HEAD."""
    github = build(tree("main", cells), gpu_machine("sm90", label="gpu-pr", **env))
    github.trees[OWN, HEAD] = github.trees[OWN, MERGED] = github.trees[OWN, MAIN]
    github.heads[7] = HEAD
    return github


def test_a_hostile_pull_request_reaches_no_machine_and_runs_nothing_of_its_words(
    tmp_path: Path, tree: Tree, build: Build
) -> None:
    """Its workflow asks for a GPU machine with every kind of step that GitHub runs after a hook that failed, and its
    names and texts are full of shell, expressions and commands."""
    github = world(tree, build)
    github.trees[EVIL] = actions_of_a_stranger(tmp_path / "evil")
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
    nothing_ran(github, run)
    assert "the event 'pull_request' starts no job here" in run.job("steal").log
    assert "Runner.Worker" in run.job("steal").log
    assert told(run)[GATE] == "success", run.job(GATE).log
    for job in run.all_jobs:
        assert job.annotations == [], "words of the pull request became a command to GitHub"
        assert all(secret not in text for secret in SECRETS.values() for text in job.seen_by_steps)
    summary = run.job(GATE).summary
    assert "touch PWNED" in summary, "the reason is shown"
    assert all(line.count("`") >= 2 for line in summary.splitlines() if "PWNED" in line), "and only as code"


def test_without_the_hook_those_steps_do_run(tmp_path: Path, tree: Tree, build: Build) -> None:
    """Or the story above would show nothing: the same steps, on a machine whose hook only fails."""
    github = world(tree, build)
    github.trees[EVIL] = actions_of_a_stranger(tmp_path / "evil")
    theirs = tree("theirs", EXCLUDED)
    (theirs / ".github/workflows/matrix-pr.yml").write_text("on: pull_request\njobs:\n" + STEAL)
    github.trees[OWN, MERGED] = theirs
    refuses = tmp_path / "refuses.sh"
    refuses.write_text("exit 1\n")
    github.machines[1].hook = refuses
    run = github.trigger("matrix-pr.yml", pull_request())
    assert len(run.job("steal").seen_by_steps) >= 3
    assert list(github.folder.rglob("PWNED"))


def test_a_pull_request_that_calls_itself_matrix_gpu_is_refused_too(tree: Tree, build: Build) -> None:
    """Its file has the name that the machine takes, and a maintainer pushed to it after the command."""
    github = world(tree, build)
    theirs = tree("theirs", EXCLUDED)
    (theirs / ".github/workflows/matrix-gpu.yml").write_text(
        "on: {pull_request: {types: [labeled, synchronize]}}\njobs:\n"
        "  steal:\n    runs-on: [self-hosted, gpu-pr, sm90]\n    permissions: {}\n"
        "    steps: [{if: always(), run: touch PWNED}]\n"
    )
    github.trees[OWN, MERGED_LATER] = theirs
    run = github.trigger("matrix-gpu.yml", pull_request("synchronize", head=PUSHED, sender="maintainer"))
    nothing_ran(github, run)


def test_a_command_runs_the_commit_that_it_names(tree: Tree, build: Build) -> None:
    github = world(tree, build, PASSES, ATTNMATRIX_CUDA_PYTHON="/usr/bin/python3")
    asked = github.trigger("matrix-comment.yml", comment(f"/gpu run {HEAD}\r\n\nlooks good"))
    assert told(asked) == {"comment": "success"}, asked.job("comment").log
    assert github.comments == [(7, f"Started for {HEAD}: https://github.com/{OWN}/actions/runs/2.")]
    # ended before hosted cells: only the machine is looked at here
    run = github.go_on(cancel_when=lambda job: job.name == "gpu / hosted (hosted)")
    assert (run.number, run.workflow) == (2, "matrix-gpu.yml")
    assert told(run)["commit"] == "success", run.job("commit").log
    device = run.job("device / device (sm90)")
    assert f"taken: workflow_dispatch of matrix-gpu.yml@refs/heads/main at {MAIN}" in device.log
    assert device.checked_out == [(OWN, HEAD)], "what runs is the commit that was read"
    assert device.seen_by_steps
    trusted = {"commit", "status", "report"}
    assert {one for job in run.all_jobs for one in job.checked_out if job.name not in trusted} == {(OWN, HEAD)}
    assert run.job("commit").checked_out == [(OWN, MAIN)], "who may run what is judged by trusted code"
    assert run.job("status").checked_out == [(OWN, MAIN)]
    address = f"https://github.com/{OWN}/actions/runs/2"
    assert github.statuses == [(HEAD, "matrix-gpu", "failure", address)], "the pull request shows it"
    assert f"**`matrix-gpu` is red** for `{HEAD}`: [the run]({address})." in github.comments[1][1]
    assert all(secret not in text for secret in SECRETS.values() for job in run.all_jobs for text in job.seen_by_steps)


@pytest.mark.parametrize(
    ("body", "by", "answer"),
    [
        (f"/gpu run {HEAD}", "stranger", None),
        (f"/gpu run {HEAD}", "reader", None),
        ("/gpu stop", "reader", None),
        (f"/gpu run {PUSHED}", "maintainer", "is not the newest commit of pull request 7: read what was pushed"),
        (f"/gpu run {HEAD[:12]}", "maintainer", "all 40 digits of the commit that you read are needed"),
        ("/gpu run", "maintainer", "that is no command"),
        (f"/gpu {HOSTILE}", "maintainer", "that is no command"),
        ("/gpu rerun", "maintainer", "nothing was run for this pull request"),
        ("/gpu stop", "maintainer", "nothing runs for this pull request"),
    ],
)
def test_a_comment_that_starts_nothing(tree: Tree, build: Build, body: str, by: str, answer: str | None) -> None:
    github = world(tree, build)
    run = github.trigger("matrix-comment.yml", comment(body, by=by))
    assert told(run) == {"comment": "failure"}, run.job("comment").log
    assert github.asked == []
    assert run.job("comment").annotations == []
    assert not list(github.folder.rglob("PWNED"))
    if answer is None:
        assert github.comments == [], "a stranger cannot make us write comments"
        assert "without the right to write" in run.job("comment").log
    else:
        ((pull, text),) = github.comments
        assert (pull, answer in text) == (7, True), text
        assert "PWNED" not in text


@pytest.mark.parametrize("event", [comment("LGTM"), comment(f"/gpu run {HEAD}", on_pull=False)])
def test_other_comments_start_no_machine(tree: Tree, build: Build, event) -> None:
    github = world(tree, build)
    assert told(github.trigger("matrix-comment.yml", event)) == {"comment": "skipped"}


def test_what_is_pushed_between_look_and_command_runs_nothing(tree: Tree, build: Build) -> None:
    github = world(tree, build)
    github.heads[7] = PUSHED
    run = github.trigger("matrix-comment.yml", comment(f"/gpu run {HEAD}"))
    assert told(run) == {"comment": "failure"}
    assert github.asked == []
    assert f"{HEAD} is not the newest commit" in github.comments[0][1]


def test_what_is_pushed_between_command_and_run_runs_nothing(tree: Tree, build: Build) -> None:
    github = world(tree, build, PASSES)
    github.trigger("matrix-comment.yml", comment(f"/gpu run {HEAD}"))
    github.heads[7] = PUSHED
    run = github.go_on()
    assert told(run)["commit"] == "failure"
    assert {job.name: job.machine for job in run.all_jobs if job.name != "commit"} == {"gpu": None} or all(
        job.conclusion == "skipped" for job in run.all_jobs if job.name != "commit"
    )
    assert not any(job.machine and not job.machine.hosted for job in run.all_jobs)


def test_what_failed_runs_again_and_what_runs_is_stopped(tree: Tree, build: Build) -> None:
    github = world(tree, build, PASSES)
    github.machines[1].online = False
    github.secrets.clear()
    github.trigger("matrix-comment.yml", comment(f"/gpu run {HEAD}"))
    run = github.go_on(cancel_when=lambda job: job.name == "gpu / hosted (hosted)")
    run.waiting = {"device / device (sm90)"}  # queued, and so in progress
    again = github.trigger("matrix-comment.yml", comment("/gpu rerun"))
    assert told(again) == {"comment": "failure"}
    assert "it still runs: https://github.com/" in github.comments[-1][1]
    stop = github.trigger("matrix-comment.yml", comment("/gpu stop"))
    assert told(stop) == {"comment": "success"}, stop.job("comment").log
    assert github.comments[-1][1] == f"Stopped: https://github.com/{OWN}/actions/runs/{run.number}."
    github.asked.clear()
    run.waiting = set()
    github.heads[7] = PUSHED
    assert told(github.trigger("matrix-comment.yml", comment("/gpu rerun"))) == {"comment": "failure"}, "it moved"
    github.heads[7] = HEAD
    again = github.trigger("matrix-comment.yml", comment("/gpu rerun"))
    assert told(again) == {"comment": "success"}, again.job("comment").log
    assert f"What failed runs again for {HEAD}" in github.comments[-1][1]
    assert len(github.asked) == 1


def test_a_machine_for_releases_takes_no_commit_of_a_pull_request(tree: Tree, build: Build) -> None:
    """Somebody changed the label of the job on the default branch: the machine's own hook knows its workflows."""
    main = tree("main", PASSES)
    workflow = main / ".github/workflows/matrix-gpu.yml"
    text = workflow.read_text()
    workflow.write_text(text.replace("gpu-pr", "gpu-release").replace("vars.GPU_PR_MACHINES", "vars.GPU_MACHINES"))
    github = build(main, gpu_machine("sm90"))
    github.trees[OWN, HEAD] = main
    github.heads[7] = HEAD
    run = github.trigger(
        "matrix-gpu.yml",
        dispatched("main", {"pull": "7", "sha": HEAD}),
        cancel_when=lambda job: job.name == "gpu / hosted (hosted)",
    )
    nothing_ran(github, run, "device / device (sm90)")
    assert "the workflow 'matrix-gpu.yml@refs/heads/main' is not taken" in run.job("device / device (sm90)").log


def test_a_pull_request_whose_own_code_plans_chooses_no_machine(tree: Tree, build: Build) -> None:
    """What it says of its device job is an arch; here it says the label of the other machines."""
    theirs = tree("theirs", PASSES)
    planning = theirs / "runner/ci/jobs.py"
    text = planning.read_text()
    assert text.count('"arch": job.runs_on[-1]') == 1
    planning.write_text(text.replace('"arch": job.runs_on[-1]', '"arch": "gpu-release", "runs_on": ["gpu-release"]'))
    github = build(tree("main", PASSES), gpu_machine("sm90", label="gpu-pr"), gpu_machine("sm100"))
    github.trees[OWN, HEAD], github.heads[7] = theirs, HEAD
    run = github.trigger(
        "matrix-gpu.yml",
        dispatched("main", {"pull": "7", "sha": HEAD}),
        cancel_when=lambda job: job.name == "gpu / hosted (hosted)",
    )
    assert run.job("device / device (sm90)").machine is None, "no machine has both labels"
    assert not any(job.machine and not job.machine.hosted for job in run.all_jobs)


@pytest.mark.parametrize("index", ["https://wheels.example/cpu", ""])
def test_a_fork_without_variables_takes_the_index_from_the_repository(tree: Tree, build: Build, index: str) -> None:
    """And where there is none, the log says what to write where."""
    main = tree("main", EXCLUDED)
    (main / ".github/pip-index").write_text(f"# the index\n{index}\n")
    github = build(main)
    github.vars["PIP_EXTRA_INDEX_URL"] = "https://not-for-forks.example"
    github.trees[OWN, MERGED] = main
    run = github.trigger("matrix-pr.yml", pull_request())
    assert told(run)[GATE] == "success", run.job(GATE).log
    hosted = run.job("matrix / hosted (hosted)")
    assert f"PIP_EXTRA_INDEX_URL={index}" in hosted.seen_by_steps[-1].splitlines()
    assert ("write its address as one line into .github/pip-index and commit it" in hosted.log) == (not index)


def the_example(tmp_path: Path, theirs: Path) -> tuple[Path, tuple[str, str]]:
    page = (PROJECT / "docs/self-hosted.md").read_text()
    (example,) = re.findall(r"^```yml\n(# \.github/workflows/attention\.yml\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    commit = re.search(r"uses: (\S+)/\.github/actions/runner@([0-9a-f]{40})", example)
    filters = re.search(r'filter: (".*")', example)
    assert commit
    assert filters
    example = example.replace(filters[1], json.dumps("0.32.0-flash_attn-sm90-hybrid_on-k0-c64-solo"))
    empty = tmp_path / "empty"
    (empty / ".github/workflows").mkdir(parents=True)
    (empty / ".github/workflows/attention.yml").write_text(example.replace("on: push", "on: [push, pull_request]"))
    return empty, (commit[1], commit[2])


@pytest.mark.parametrize("fork", [False, True])
def test_the_example_works_in_an_empty_repository_and_from_a_fork(
    tmp_path: Path, tree: Tree, build: Build, fork: bool
) -> None:
    """No variable is there: the index comes with the action."""
    ours = tree("main", PASSES)
    empty, commit = the_example(tmp_path, ours)
    (ours / ".github/pip-index").write_text("# the index\nhttps://wheels.example/cpu\n")
    github = build(empty)
    github.vars.clear()
    github.trees[OWN, MERGED] = empty
    github.trees[commit] = ours
    event = pull_request() if fork else dispatched("main", {})
    event.name = "pull_request" if fork else "push"
    run = github.trigger("attention.yml", event)
    (job,) = run.all_jobs
    assert job.conclusion == "success", job.log
    assert "exit 0: everything as expected" in job.summary
    assert "PIP_EXTRA_INDEX_URL=https://wheels.example/cpu" in job.seen_by_steps[-1]
    (row,) = results.read(run.artifacts["attnmatrix"])
    assert (row.state, row.evidence) == ("pass", "emulated")


@pytest.mark.parametrize(
    ("file", "env", "line", "says"),
    [
        ("# words\nhttps://a.example/x\n", {}, "PIP_EXTRA_INDEX_URL=https://a.example/x\n", ""),
        (
            "https://a.example/x\n",
            {"PIP_EXTRA_INDEX_URL": "https://b.example"},
            "PIP_EXTRA_INDEX_URL=https://b.example\n",
            "",
        ),
        (
            "",
            {"PIP_EXTRA_INDEX_URL": "https://b.example", "INDEX": "https://c.example"},
            "PIP_EXTRA_INDEX_URL=https://c.example\n",
            "",
        ),
        ("# words\n", {}, "", "as one line into .github/pip-index and commit it"),
        (None, {"PIP_EXTRA_INDEX_URL": ""}, "", "as one line into .github/pip-index and commit it"),
        ("# words\n", {"PIP_FIND_LINKS": "/wheels"}, "", ""),
        ("ftp://a.example\n", {}, "", "as one line into .github/pip-index"),
        ("", {"INDEX": "https://a.example\nPATH=/evil"}, None, "the index is no address of one line"),
        ("https://a.example /evil\n", {}, None, "the index is no address of one line"),
    ],
)
def test_the_index_is_an_input_a_variable_or_a_file(
    tmp_path: Path, file: str | None, env: dict[str, str], line: str | None, says: str
) -> None:
    """In that order; where there is none, the message says what to write where."""
    (tmp_path / ".github").mkdir()
    if file is not None:
        (tmp_path / ".github/pip-index").write_text(file)
    script = PROJECT / ".github/actions/runner/index.sh"
    done = subprocess.run(
        [script, tmp_path], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", **env}
    )
    assert (done.returncode, done.stdout) == ((0, line) if line is not None else (2, ""))
    assert says in done.stderr
    assert bool(says) == bool(done.stderr)


RUN_SH = """#!/bin/bash
echo "$*" >>"$LOG_OF_TEST"
env >"$(dirname "$0")/../env-of-runner"
[[ -z "$(ls -A _work)" ]] && echo clean >>../states || echo dirty >>../states
touch _work/left evil .env
"""


def test_a_just_in_time_runner_takes_one_job_on_a_clean_machine(tmp_path: Path) -> None:
    """GitHub's answer and its runner are played; twice, as systemd starts it."""
    asked = []

    def made(path: str, authorization: str | None, given: object) -> tuple[int, object]:
        asked.append((path, authorization, given))
        return 201, {"runner": {"id": len(asked)}, "encoded_jit_config": f"config{len(asked)}"}

    fresh = tmp_path / "actions-runner"
    fresh.mkdir()
    (fresh / "run.sh").write_text(RUN_SH.replace('"$LOG_OF_TEST"', str(tmp_path / "calls")))
    (fresh / "run.sh").chmod(0o755)
    (tmp_path / "token").write_text("s3cr3t\n")
    hook = tmp_path / "admit.sh"
    hook.write_text("#!/bin/bash\n")
    hook.chmod(0o755)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/bash\necho "$@" >>{tmp_path}/fit\nexit "${{UNFIT:-0}}"\n')
    python.chmod(0o755)
    script = PROJECT / "containers/jit-runner.sh"
    with answering(lambda *_: (404, {}), made) as address:
        env = {
            "PATH": os.environ["PATH"], "SCOPE": "repos/a/b", "LABEL": "gpu-pr", "ARCH": "sm90", "GROUP": "3",
            "GITHUB_API_URL": address, "TOKEN_FILE": str(tmp_path / "token"), "HOOK": str(hook),
            "RUNNER_SOURCE": str(fresh), "RUNNER_PLACE": str(tmp_path / "actions"), "PYTHON": str(python),
            "RUNNER_USER": subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip(),
        }  # fmt: skip

        def start(**others: str) -> "subprocess.CompletedProcess[str]":
            return subprocess.run([script], env={**env, **others}, capture_output=True, text=True, check=False)

        for _ in range(2):
            done = start()
            assert done.returncode == 0, done.stderr
        assert start(SCOPE="repos/../x y").returncode == 2
        assert "LABEL is neither" in start(LABEL="gpu").stderr
        hook.chmod(0o644)
        assert "without it this machine takes any job" in start().stderr
        hook.chmod(0o755)
        ill = start(UNFIT="3", UNFIT_S="0")
        assert (ill.returncode, "this machine is not well and takes no job" in ill.stderr) == (3, True)
        assert "is not there: install the project" in start(PYTHON=str(tmp_path / "none")).stderr
        assert len(asked) == 2, "GitHub was asked for nothing that could not be used"
        (tmp_path / "actions/_work/unwell").touch()
        rested = start(REST_S="0", ATTNMATRIX_CUDA_PYTHON="/opt/x")
        assert (rested.returncode, "others come first for 0 seconds" in rested.stderr) == (0, True)
        assert "others come first" not in start().stderr, "once"
    assert (tmp_path / "fit").read_text() == "-I -m runner ci fit --arch sm90\n" * 5
    assert [path for path, _, _ in asked] == ["/repos/a/b/actions/runners/generate-jitconfig"] * 4
    assert {authorization for _, authorization, _ in asked} == {"Bearer s3cr3t"}
    bodies = [given for _, _, given in asked]
    assert all(isinstance(body, dict) for body in bodies)
    assert {(body["runner_group_id"], tuple(body["labels"]), body["work_folder"]) for body in bodies} == {
        (3, ("self-hosted", "gpu-pr", "sm90"), "_work")
    }
    assert (tmp_path / "calls").read_text() == "".join(f"--jitconfig config{number}\n" for number in range(1, 5))
    assert (tmp_path / "states").read_text() == "clean\n" * 4, "what the first job left is gone"
    seen = (tmp_path / "env-of-runner").read_text()
    assert f"ACTIONS_RUNNER_HOOK_JOB_STARTED={hook}\n" in seen
    assert "s3cr3t" not in seen


def test_github_that_gives_no_runner_is_said(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "token").write_text("s3cr3t")
    with answering(lambda *_: (404, {}), lambda *_: (403, {"message": "no"})) as address:
        env = {"PATH": os.environ["PATH"], "SCOPE": "orgs/a", "LABEL": "gpu-release", "ARCH": "sm90",
               "GITHUB_API_URL": address, "TOKEN_FILE": str(tmp_path / "token"), "HOOK": str(tmp_path / "run.sh"),
               "RUNNER_SOURCE": str(tmp_path), "PYTHON": "/usr/bin/true"}  # fmt: skip
        script = PROJECT / "containers/jit-runner.sh"
        done = subprocess.run([script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "GitHub gives no runner of orgs/a: the token needs the right" in done.stderr
    assert "s3cr3t" not in done.stderr
