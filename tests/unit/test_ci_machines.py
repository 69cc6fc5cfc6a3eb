"""What is asked of GitHub and of machines: who is online, who is waited for, whose jobs are taken, what is cleaned."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner import rundir
from runner.ci import admission, api, asking, cleaning, earlier, eviction, missing, waiting
from runner.ci.admission import Refused, Rules
from runner.ci.api import Api, JobState, Machine, Unavailable
from runner.ci.gather import Came, Gathered
from runner.ci.jobs import Asked, Job, Side
from runner.cli import main
from runner.engines.local import LocalEngine
from runner.environments.daemon import Daemon
from runner.errors import MachineError, UsageError
from runner.options import RunOptions
from tests.answering import answering


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Answers from a list, one for each request, and keeps what was asked."""
    state: dict[str, Any] = {"answers": [], "asked": [], "tokens": []}

    def answer(path: str, authorization: str | None) -> tuple[int, Any]:
        state["asked"].append(path)
        state["tokens"].append(authorization)
        found: tuple[int, Any] = state["answers"].pop(0) if len(state["answers"]) > 1 else state["answers"][0]
        return found

    monkeypatch.setenv("GITHUB_REPOSITORY", "a/b")
    monkeypatch.setenv("TOKEN", "secret")
    monkeypatch.setattr(Api._try.retry, "sleep", lambda _: None)  # type: ignore[attr-defined]
    with answering(answer) as address:
        monkeypatch.setenv("GITHUB_API_URL", address)
        yield state


def test_all_pages_of_machines_are_read(server) -> None:
    row = {"name": "lab1", "status": "online", "labels": [{"name": "gpu"}, {"name": "sm90"}]}
    server["answers"] = [(200, {"runners": [row] * 100}), (200, {"runners": [{**row, "status": "offline"}]})]
    found = Api.here("TOKEN").machines()
    assert len(found) == 101
    assert found[0] == Machine(name="lab1", online=True, labels=frozenset({"gpu", "sm90"}))
    assert not found[100].online
    assert [path.partition("?")[0] for path in server["asked"]] == ["/repos/a/b/actions/runners"] * 2
    assert server["tokens"] == ["Bearer secret"] * 2


def test_trouble_of_the_server_is_tried_again_and_a_token_that_may_not_ask_is_not(server) -> None:
    server["answers"] = [(502, b"bad"), (200, b"<html>"), (200, {"runners": []})]
    assert Api.here("TOKEN").machines() == []
    server["answers"], server["asked"] = [(403, {"message": "no"})], []
    with pytest.raises(Unavailable, match=r"the token may not ask \(403\) about a/b/actions/runners"):
        Api.here("TOKEN").machines()
    assert len(server["asked"]) == 1


@pytest.mark.parametrize("body", [[], {"runners": None}, {"runners": [1]}, {}])
def test_an_answer_that_is_none_is_no_traceback(server, body: Any) -> None:
    server["answers"] = [(200, body)]
    with pytest.raises(Unavailable):
        Api.here("TOKEN").machines()


def test_a_plan_goes_on_where_nobody_answers(server, monkeypatch: pytest.MonkeyPatch) -> None:
    server["answers"] = [(500, b"")]
    monkeypatch.setenv("RUNNERS_TOKEN", "secret")
    told: list[str] = []
    asked = Asked(machines={"sm90": 1})
    assert asking.with_machines(asked, told.append) == asked
    assert "each machine counts as online" in told[0]


def test_outside_of_a_workflow_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    for name in ("GITHUB_REPOSITORY", "GITHUB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert main(["ci", "wait", "--jobs", "sm90"]) == 2
    assert "GITHUB_REPOSITORY is not set" in capsys.readouterr().err


def test_why_a_machine_is_not_asked() -> None:
    machines = [
        Machine(name="on", online=True, labels=frozenset({"self-hosted", "gpu", "sm90"})),
        Machine(name="off", online=False, labels=frozenset({"self-hosted", "gpu", "sm90", "sm100"})),
        Machine(name="other", online=True, labels=frozenset({"self-hosted", "sm120"})),  # without the label gpu
    ]
    why = api.offline(("sm90", "sm100", "sm120"), machines, ("self-hosted", "gpu"))
    assert why == {
        "sm100": "offline: off",
        "sm120": "no machine is registered with the labels gpu, self-hosted, sm120",
    }


def test_busy_is_told_from_offline() -> None:
    """Two machines of an arch: it is busy only where all that are online run other jobs, and offline is not busy."""
    labels = frozenset({"self-hosted", "gpu-pr", "sm90"})

    def machine(name: str, *, online: bool = True, busy: bool = False) -> Machine:
        return Machine(name=name, online=online, busy=busy, labels=labels)

    def asked(*machines: Machine) -> tuple[dict[str, str], dict[str, str]]:
        archs, needed = ("sm90",), ("self-hosted", "gpu-pr")
        return api.offline(archs, machines, needed), api.busy(archs, machines, needed)

    assert asked(machine("a", busy=True), machine("b")) == ({}, {})
    assert asked(machine("b", busy=True), machine("a", busy=True)) == ({}, {"sm90": "a, b"})
    assert asked(machine("a", busy=True), machine("b", online=False)) == ({}, {"sm90": "a"})
    assert asked(machine("b", online=False)) == ({"sm90": "offline: b"}, {})


def test_a_plan_knows_which_machines_are_busy(server, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"name": "lab1", "status": "online", "busy": True, "labels": [{"name": x} for x in
           ("self-hosted", "gpu-release", "sm90")]}  # fmt: skip
    server["answers"] = [(200, {"runners": [row]})]
    monkeypatch.setenv("RUNNERS_TOKEN", "secret")
    found = asking.with_machines(Asked(machines={"sm90": 1, "sm100": 1}), print)
    assert found.busy == {"sm90": "lab1"}
    assert found.offline == {"sm100": "no machine is registered with the labels gpu-release, self-hosted, sm100"}


@pytest.mark.parametrize("all_are_listed", [True, False])
def test_a_job_of_an_older_attempt_is_found_wherever_it_is_listed(server, all_are_listed: bool) -> None:
    """GitHub's documentation leaves open whether the list of a later attempt has what did not run again."""
    first = {"name": "m / hosted (hosted)", "status": "completed", "conclusion": "success"}
    second = {"name": "device / device (sm90)", "status": "completed", "conclusion": "failure"}
    newest = [second, first] if all_are_listed else [second]
    server["answers"] = [(200, {"jobs": newest}), (200, {"jobs": [first, {**second, "conclusion": "success"}]})]
    found = Api.here("TOKEN").last_states(5, 2, ["sm90", "hosted"])
    assert {name: state.conclusion for name, state in found.items()} == {"sm90": "failure", "hosted": "success"}
    assert len(server["asked"]) == (1 if all_are_listed else 2)


EARLIER = {
    "path": ".github/workflows/matrix-nightly.yml@main",
    "head_branch": "main",
    "head_repository": {"full_name": "a/b"},
    "event": "schedule",
    "status": "completed",
    "run_attempt": 2,
}
HERE = {"GITHUB_REPOSITORY": "a/b", "GITHUB_REF_NAME": "main", "GITHUB_REF_PROTECTED": "true"}


def test_an_earlier_run_is_asked_for_once(server) -> None:
    server["answers"] = [(200, EARLIER)]
    run = Api.here("TOKEN").run(12)
    earlier.check(run, 12, HERE)
    assert run.run_attempt == 2
    assert server["asked"] == ["/repos/a/b/actions/runs/12"]
    server["answers"] = [(200, {"path": 5})]
    with pytest.raises(Unavailable, match="the run 12"):
        Api.here("TOKEN").run(12)


@pytest.mark.parametrize(
    ("changed", "here", "words"),
    [
        ({"path": ".github/workflows/matrix-gpu.yml"}, {}, "it is of 'matrix-gpu.yml'"),
        ({"path": ".github/workflows/x/matrix-nightly.yml"}, {}, "it is of 'x/matrix-nightly.yml'"),
        ({"head_repository": {"full_name": "stranger/b"}}, {}, "its commit is of 'stranger/b', and this is a/b"),
        ({"head_repository": None}, {}, "its commit is of 'nobody'"),
        ({"event": "pull_request"}, {}, "the event 'pull_request' started it"),
        ({"head_branch": "topic"}, {}, "it ran on 'topic', and this is main"),
        ({"head_branch": None}, {}, "it ran on 'no branch'"),
        ({"status": "in_progress"}, {}, "it is 'in_progress': wait for its end"),
        ({"head_branch": "topic"}, {"GITHUB_REF_NAME": "topic", "GITHUB_REF_PROTECTED": "false"},
         "'topic' is no protected branch"),
    ],
)  # fmt: skip
def test_what_no_sign_off_takes(changed: dict[str, Any], here: dict[str, str], words: str) -> None:
    run = api.WorkflowRun(**{**EARLIER, **changed})
    with pytest.raises(UsageError) as error:
        earlier.check(run, 12, {**HERE, **here})
    assert words in str(error.value)


def absent(skipped: int) -> Gathered:
    job = Job(name="sm100", side=Side.DEVICE, runs_on=("self-hosted", "gpu-release", "sm100"))
    return Gathered(came=(Came(job=job, planned=4, skipped=skipped, because="offline: lab `1` @someone"),))


def issue(number: int, login: str = missing.WRITER, **others: Any) -> dict[str, Any]:
    title = "Evidence from GPUs is missing (nightly)"
    return {"number": number, "title": title, "user": {"login": login}, **others}


@pytest.mark.parametrize(
    ("there", "skipped", "sent"),
    [
        ([], 4, ("POST", "/repos/a/b/issues")),
        ([issue(9)], 4, ("PATCH", "/repos/a/b/issues/9")),
        ([issue(9)], 0, ("PATCH", "/repos/a/b/issues/9")),
        ([], 0, None),
        ([issue(9, login="stranger"), issue(8, pull_request={})], 4, ("POST", "/repos/a/b/issues")),
        ([{**issue(9), "title": "Evidence from GPUs is missing (gpu)"}], 0, None),
    ],
)
def test_one_issue_is_kept_about_missing_evidence(
    monkeypatch: pytest.MonkeyPatch, there: list[dict[str, Any]], skipped: int, sent: tuple[str, str] | None
) -> None:
    done: list[tuple[str, Any]] = []

    def take(path: str, _: str | None, given: Any) -> tuple[int, Any]:
        done.append((path, given))
        return 200, {}

    monkeypatch.setenv("GITHUB_REPOSITORY", "a/b")
    with answering(lambda *_: (200, there), take) as address:
        monkeypatch.setenv("GITHUB_API_URL", address)
        missing.report(Api.here("TOKEN"), absent(skipped), workflow="nightly", run="https://x/runs/1")
    assert [path for path, _ in done] == ([sent[1]] if sent else [])
    if skipped and done:
        assert "self-hosted gpu-release sm100" in done[0][1]["body"], "the machine is named"
        assert "``offline: lab `1` @someone``" in done[0][1]["body"], "words of a machine are code"
    elif done:
        assert done[0][1]["state"] == "closed"


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def waited(history, names=("sm90", "sm100"), patience_s=100.0):
    """`history` gives the states at a time."""
    clock = Clock()
    told: list[str] = []
    found = waiting.wait(
        names, lambda: history(clock.now), patience_s=patience_s, tell=told.append, clock=clock, sleep=clock.sleep
    )
    return found, clock.now, told


def state(name: str, status: str, conclusion: str | None = None) -> JobState:
    return JobState(name=f"matrix / device ({name})", status=status, conclusion=conclusion)


def test_a_job_that_runs_is_waited_for_however_long_and_one_that_is_queued_is_not() -> None:
    def history(now: float):
        long = state("sm90", "completed", "success") if now >= 5000 else state("sm90", "in_progress")
        return [long, state("sm100", "queued"), JobState(name="matrix / plan", status="completed")]

    found, took, told = waited(history)
    assert (found.untaken, found.red) == (("sm100",), ())
    assert 5000 <= took < 5030
    assert told == ["queued: sm100; running: sm90"], "news are told once"


def test_without_a_machine_it_ends_in_time() -> None:
    found, took, _ = waited(lambda _: [state("sm90", "queued"), state("sm100", "waiting")])
    assert found.untaken == ("sm90", "sm100")
    assert 100 <= took <= 125


def test_a_job_that_is_not_listed_yet_counts_as_queued() -> None:
    found, _, _ = waited(lambda now: [state(n, "completed", "success") for n in ("sm90", "sm100")] if now > 50 else [])
    assert found == waiting.Waited()


def test_what_ended_well_before_and_does_not_run_again_is_not_waited_for() -> None:
    """Of sm90 and sm100 only the second was red; the list of the new attempt may have that one alone."""
    again = [state("sm100", "completed", "success")]
    for first, untaken in (("success", ()), ("failure", ("sm90",))):
        clock = Clock()
        found = waiting.wait(
            ("sm90", "sm100"), lambda: again, patience_s=1800, tell=lambda _: None, clock=clock, sleep=clock.sleep,
            before=lambda first=first: {"sm90": state("sm90", "completed", first)},
        )  # fmt: skip
        assert (found.untaken, found.red) == (untaken, ())
        assert clock.now == 60 if not untaken else clock.now >= 1800


@pytest.mark.parametrize("conclusion", ["failure", "cancelled", "timed_out", None])
def test_a_job_that_ended_otherwise_than_well_is_red(conclusion: str | None) -> None:
    found, took, _ = waited(lambda _: [state("sm90", "completed", conclusion)], names=("sm90",))
    assert (found.red, took) == (("sm90",), 0)


def test_github_may_be_silent_for_minutes_but_not_for_ever() -> None:
    def history(now: float):
        if 20 < now < 400:
            raise Unavailable("GitHub does not answer")
        return [state("sm90", "completed", "success") if now >= 500 else state("sm90", "in_progress")]

    found, took, told = waited(history, names=("sm90",))
    assert (found, took >= 500) == (waiting.Waited(), True)
    assert "GitHub does not answer; asked again in 20 s" in told

    def silent(_: float):
        raise Unavailable("GitHub does not answer")

    with pytest.raises(Unavailable):
        waited(silent)


def test_sm10_is_not_sm100() -> None:
    found, _, _ = waited(lambda _: [state("sm100", "completed", "success")], names=("sm10",), patience_s=1)
    assert found.untaken == ("sm10",)


WORKFLOW = "matrix-gpu.yml@refs/heads/main"
RULES = Rules(repositories=frozenset({"a/b"}), workflows=frozenset({WORKFLOW}))


def environ(name: str, **others: str) -> dict[str, str]:
    known = {"GITHUB_REPOSITORY": "a/b", "GITHUB_EVENT_NAME": name, "GITHUB_REF": "refs/heads/main",
             "GITHUB_WORKFLOW_REF": f"a/b/.github/workflows/{WORKFLOW}", "GITHUB_SHA": "f" * 40}  # fmt: skip
    return {**known, **others}


@pytest.mark.parametrize("name", ["push", "schedule", "workflow_dispatch"])
def test_jobs_of_those_who_may_write_are_taken(name: str) -> None:
    assert admission.admit(RULES, environ(name)) == f"{name} of {WORKFLOW} at {'f' * 40}"


@pytest.mark.parametrize(
    ("name", "others", "words"),
    [
        ("push", {"GITHUB_REPOSITORY": "evil/b"}, "jobs of 'evil/b' are not taken"),
        ("push", {"GITHUB_REPOSITORY": ""}, "jobs of '' are not taken"),
        ("push", {"GITHUB_REF": "refs/pull/7/merge"}, "only branches and tags"),
        ("push", {"GITHUB_WORKFLOW_REF": "a/b/.github/workflows/matrix-gpu.yml@refs/heads/topic"}, "is not taken"),
        ("push", {"GITHUB_WORKFLOW_REF": "evil/b/.github/workflows/matrix-gpu.yml@refs/heads/main"}, "is not taken"),
        ("push", {"GITHUB_WORKFLOW_REF": ""}, "the workflow '' is not taken"),
        ("pull_request", {}, "'pull_request' starts no job here: a maintainer's comment `/gpu run SHA`"),
        ("pull_request_target", {}, "'pull_request_target' starts no job"),
        ("workflow_run", {}, "'workflow_run' starts no job"),
        ("issue_comment", {}, "'issue_comment' starts no job"),
        ("merge_group", {}, "'merge_group' starts no job"),
        ("", {}, "'' starts no job"),
    ],
)
def test_every_other_job_is_refused(name: str, others: dict[str, str], words: str) -> None:
    with pytest.raises(Refused) as error:
        admission.admit(RULES, environ(name, **others))
    assert words in str(error.value)


def test_the_command_ends_with_3_where_it_refuses(monkeypatch: pytest.MonkeyPatch, capsys, tmp_path: Path) -> None:
    for key, value in environ("pull_request").items():
        monkeypatch.setenv(key, value)
    command = ["ci", "admit", "--repository", "a/b", "--workflow", WORKFLOW]
    assert main(command) == 3
    assert "no process Runner.Worker is above this one: other steps of the job may run" in capsys.readouterr().err
    monkeypatch.setenv("GITHUB_EVENT_NAME", "push")
    assert main(command) == 0
    assert f"taken: push of {WORKFLOW}" in capsys.readouterr().out
    assert main([*command, "--work", str(tmp_path)]) == 2
    assert "name the folder _work of the Actions runner" in capsys.readouterr().err


def test_a_refused_job_is_ended_and_what_it_fetched_is_removed(tmp_path: Path) -> None:
    """Its process is played by a script of that name, which would go on with the next step."""
    work = tmp_path / "_work"
    for name in ("_actions/evil/x", "_temp", "repo/repo", "_tool"):
        (work / name).mkdir(parents=True)
        (work / name / "file").write_text("")
    outside = tmp_path / "outside"
    outside.mkdir()
    (work / "link").symlink_to(outside)
    worker = tmp_path / "Runner.Worker"
    worker.write_text(f"#!/bin/bash\nsleep 60 &\necho $! >{tmp_path}/pid\nwait\ntouch {tmp_path}/next-step\n")
    worker.chmod(0o755)
    job = subprocess.Popen([worker], start_new_session=True)
    try:
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            time.sleep(0.01)
        told: list[str] = []
        assert eviction.evict(work, told.append, start=int((tmp_path / "pid").read_text()))
        assert job.wait(10) == -signal.SIGKILL
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    assert [path.name for path in work.iterdir()] == ["_tool"]
    assert outside.is_dir()
    assert not (tmp_path / "next-step").exists()
    assert told == [f"Runner.Worker ({job.pid}) is ended: no step of the job runs"]


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without environments, and no Docker: what is cleaned here is nobody's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cleaning.daemon, "examine", lambda: Daemon(trouble="is not installed"))
    return tmp_path


def a_run(runs: Path, name: str, days: float) -> Path:
    path = runs / name
    path.mkdir(parents=True)
    rundir.keep(rundir.RunDirectory(name, path), RunOptions(matrix=Path("matrix.yaml")))
    for one in (path / rundir.ASKED, path):
        os.utime(one, (time.time() - days * 86400,) * 2)
    return path


def test_old_runs_go_and_all_else_stays(alone: Path) -> None:
    runs = alone / "runs"
    old, new, held = a_run(runs, "old", 15), a_run(runs, "new", 13), a_run(runs, "held", 15)
    notes = runs / "notes"
    notes.mkdir()
    os.utime(notes, (0, 0))
    (runs / "latest").symlink_to("old")
    (runs / "elsewhere").symlink_to(new)
    told: list[str] = []
    with rundir.held(held):
        for one in (held / ".lock", held / ".holder", held):
            os.utime(one, (0, 0))
        cleaning.remove_runs(runs, days=14, say=told.append)
    assert not old.exists()
    assert new.exists()
    assert held.exists()
    assert notes.exists()
    assert not (runs / "latest").is_symlink(), "it would lead nowhere"
    assert (runs / "elsewhere").exists()
    assert f"{old}: removed, older than 14 days" in told
    assert any("is at this run" in line for line in told)


def environments(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three overlays that are links to folders, as builds make them; the second one is the oldest."""
    root.mkdir(parents=True)
    places = []
    for number, age in enumerate((10, 30, 20)):
        folder = (
            root / f"vllm-{number}.0-0000000000000000.{number}{number}{number}{number}{number}{number}{number}{number}"
        )
        folder.mkdir()
        place = root / f"vllm-{number}.0-0000000000000000"
        place.symlink_to(folder.name)
        os.utime(place, (time.time() - age * 86400,) * 2, follow_symlinks=False)
        places.append(place)
    return places


def test_environments_go_one_by_one_the_oldest_first_until_there_is_room(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = environments(alone / ".runner/envs", monkeypatch)

    def free(place: Path) -> int:  # each environment takes 10 GB of this disk
        return 70_000_000_000 - 10_000_000_000 * sum(place.is_symlink() for place in (first, second, third))

    monkeypatch.setattr(cleaning, "_free", free)
    cleaning.make_room(40, lambda _: None)
    assert [place.is_symlink() for place in (first, second, third)] == [True, True, True], "there is room"
    cleaning.make_room(55, lambda _: None)
    assert [place.is_symlink() for place in (first, second, third)] == [True, False, False]
    told: list[str] = []
    with pytest.raises(MachineError, match="nothing of ours is left to remove"):
        cleaning.make_room(75, told.append)


def test_environments_that_are_shared_by_a_link_stay(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = environments(alone / "shared/.runner/envs", monkeypatch)
    mine = alone / "mine"
    mine.mkdir()
    (mine / ".runner").symlink_to(alone / "shared/.runner")
    monkeypatch.chdir(mine)
    monkeypatch.setattr(cleaning, "_free", lambda _: 0)
    told: list[str] = []
    with pytest.raises(MachineError):
        cleaning.make_room(1, told.append)
    assert all(place.is_symlink() for place in places)
    assert "kept, it leads to" in told[0]


def test_what_dead_runs_left_is_ended_and_said(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalEngine, "sweep", lambda _: ["process 7"])
    told: list[str] = []
    cleaning.end_left_overs(told.append)
    assert told == ["process 7: ended, its run is dead"]


def test_more_room_than_the_disk_has_is_refused_before_anything_is_removed(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = environments(alone / ".runner/envs", monkeypatch)
    with pytest.raises(UsageError, match=r"the disk of .* has .*: nothing was removed"):
        cleaning.make_room(10_000_000, lambda _: None)
    assert all(place.is_symlink() for place in places)
