"""Comments of maintainers and of others, and pushes between a look, a command and a run."""

import pytest

from tests.actions.conftest import OWN, PASSES, SECRETS, Build
from tests.actions.events import HEAD, MAIN, PUSHED, comment
from tests.actions.strangers import BESIDE, HOSTILE, Tree, told, world

pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]


def test_a_command_runs_the_commit_that_it_names(tree: Tree, build: Build) -> None:
    github = world(tree, build, PASSES, ATTNMATRIX_CUDA_PYTHON="/usr/bin/python3")
    asked = github.trigger("matrix-comment.yml", comment(f"/gpu run {HEAD}\r\n\nlooks good"))
    assert told(asked) == {"comment": "success"}, asked.job("comment").log
    assert github.comments == [(7, f"Started for {HEAD}: https://github.com/{OWN}/actions/runs/2.")]
    github.dies = frozenset({"gpu / hosted (hosted)"})  # only the machine is looked at here
    run = github.go_on()
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
    github.dies = BESIDE
    run = github.go_on()
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
