"""What a comment on a pull request asks for, and what GitHub is asked to do because of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.ci import pulls
from runner.ci.api import Api, Unavailable
from runner.ci.pulls import Declined, NotAllowed
from runner.cli import main
from runner.errors import UsageError
from tests.answering import answering

HEAD, OTHER = "b" * 40, "c" * 40
RUNS = "/repos/a/b/actions/workflows/matrix-gpu.yml/runs"


class World:
    """GitHub: what it answers to a GET, and what it was asked to do."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {
            "/repos/a/b/collaborators/alice/permission": (200, {"permission": "write"}),
            "/repos/a/b/pulls/7": (200, {"state": "open", "head": {"sha": HEAD}}),
            RUNS: (200, {"workflow_runs": []}),
        }
        self.done: list[tuple[str, Any]] = []
        self.reply: tuple[int, Any] = (200, {"html_url": "https://github.com/a/b/actions/runs/9"})

    def get(self, path: str, authorization: str | None) -> tuple[int, Any]:
        assert authorization == "Bearer t"
        return self.answers.get(path.partition("?")[0], (404, {}))

    def post(self, path: str, authorization: str | None, given: Any) -> tuple[int, Any]:
        assert authorization == "Bearer t"
        self.done.append((path.removeprefix("/repos/a/b/"), given))
        return self.reply


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    monkeypatch.setenv("GITHUB_REPOSITORY", "a/b")
    monkeypatch.setenv("GITHUB_TOKEN", "t")
    monkeypatch.setattr(Api._try.retry, "sleep", lambda _: None)  # type: ignore[attr-defined]
    with answering(made.get, made.post) as address:
        monkeypatch.setenv("GITHUB_API_URL", address)
        yield made


def event(body: str | None, by: str = "alice", **issue: Any) -> str:
    return json.dumps(
        {
            "comment": {"body": body, "user": {"login": by, "type": "User"}},
            "issue": {"number": 7, "pull_request": {}, **issue},
            "repository": {"default_branch": "trunk"},
        }
    )


def obey(body: str | None, by: str = "alice") -> str:
    return pulls.obey(Api.here("GITHUB_TOKEN"), pulls.comment_of(event(body, by)))


def test_a_commit_is_run_on_the_default_branch(world: World) -> None:
    assert obey(f"/gpu run {HEAD}") == f"Started for {HEAD}: https://github.com/a/b/actions/runs/9."
    inputs = {"pull": "7", "sha": HEAD}
    assert world.done == [
        ("actions/workflows/matrix-gpu.yml/dispatches", {"ref": "trunk", "inputs": inputs, "return_run_details": True})
    ]


def test_a_server_that_names_no_run_is_no_trouble(world: World) -> None:
    world.reply = (204, b"")
    assert obey(f"/gpu run {HEAD}") == f"Started for {HEAD}: a run of matrix-gpu.yml."


@pytest.mark.parametrize("permission", ["read", "triage", "none", None, ["write"], "WRITE"])
def test_who_may_not_write_may_not_command(world: World, permission: Any) -> None:
    world.answers["/repos/a/b/collaborators/alice/permission"] = (200, {"permission": permission})
    with pytest.raises(NotAllowed):
        obey(f"/gpu run {HEAD}")
    assert world.done == []


def test_an_account_whose_name_is_a_path_is_asked_for_as_a_name(world: World) -> None:
    with pytest.raises(Unavailable, match=r"collaborators/\.\.%2Falice%3Fx/permission"):
        obey(f"/gpu run {HEAD}", by="../alice?x")
    assert world.done == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (None, "that is no command"),
        ("", "that is no command"),
        ("/gpurun", "that is no command"),
        ("/gpu", "that is no command"),
        ("/gpu RERUN", "that is no command"),
        (f"/gpu run {HEAD} --force", "that is no command"),
        (f"please\n/gpu run {HEAD}", "that is no command"),
        (f"/gpu run {HEAD[:39]}", "all 40 digits"),
        (f"/gpu run {HEAD.upper()}", "all 40 digits"),
        ("/gpu run main", "all 40 digits"),
        (f"/gpu run {OTHER}", f"{OTHER} is not the newest commit of pull request 7"),
    ],
)
def test_what_is_no_command_is_declined(world: World, body: str | None, says: str) -> None:
    with pytest.raises(Declined, match=says):
        obey(body)
    assert world.done == []


def test_a_pull_request_that_is_closed_runs_nothing(world: World) -> None:
    world.answers["/repos/a/b/pulls/7"] = (200, {"state": "closed", "head": {"sha": HEAD}})
    with pytest.raises(Declined, match="is not open"):
        obey(f"/gpu run {HEAD}")


def run(number: int, title: str, status: str = "completed", conclusion: str | None = "failure") -> dict[str, Any]:
    return {"id": number, "display_title": title, "status": status, "conclusion": conclusion, "html_url": f"u{number}"}


def test_only_runs_of_this_pull_request_are_run_again_and_stopped(world: World) -> None:
    rows = [
        run(1, f"pull 7 at {HEAD}"),
        run(2, f"pull 7 at {HEAD}"),
        run(3, f"pull 77 at {HEAD}"),
        run(4, f"a pull 7 at {HEAD}"),
        run(5, "pull 7 at x"),
        run(6, f"pull 77 at {HEAD}", "in_progress", None),
    ]
    world.answers[RUNS] = (200, {"workflow_runs": rows})
    assert obey("/gpu rerun") == f"What failed runs again for {HEAD}: u2."
    assert world.done == [("actions/runs/2/rerun-failed-jobs", {})]
    with pytest.raises(Declined, match="nothing runs for this pull request"):
        obey("/gpu stop")
    rows[1] = run(2, f"pull 7 at {HEAD}", "queued", None)
    with pytest.raises(Declined, match="it still runs: u2"):
        obey("/gpu rerun")
    assert obey("/gpu stop") == "Stopped: u2."
    assert world.done[1:] == [("actions/runs/2/cancel", {})]


def test_what_was_green_or_is_of_an_older_commit_does_not_run_again(world: World) -> None:
    world.answers[RUNS] = (200, {"workflow_runs": [run(1, f"pull 7 at {HEAD}", conclusion="success")]})
    with pytest.raises(Declined, match="nothing failed: u1"):
        obey("/gpu rerun")
    world.answers[RUNS] = (200, {"workflow_runs": [run(1, f"pull 7 at {OTHER}")]})
    with pytest.raises(Declined, match="is not the newest commit"):
        obey("/gpu rerun")
    assert world.done == []


def test_what_github_does_not_do_is_asked_for_once(world: World) -> None:
    world.reply = (502, {})
    with pytest.raises(Unavailable, match=r"GitHub does not do actions/workflows/.*: HTTP 502"):
        obey(f"/gpu run {HEAD}")
    assert len(world.done) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", event("x", number="7; rm"), event("x", number=-1)])
def test_an_event_of_another_kind_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="holds no event issue_comment"):
        pulls.comment_of(text)


def test_a_comment_on_an_issue_is_none() -> None:
    with pytest.raises(UsageError, match="commands are for pull requests"):
        pulls.comment_of(event("/gpu stop", pull_request=None))


def test_the_commands_answer_on_the_pull_request(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "event.json"
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(path))
    path.write_text(event(f"/gpu run {HEAD}"))
    assert main(["ci", "comment"]) == 0
    assert world.done[-1] == (
        "issues/7/comments", {"body": f"Started for {HEAD}: https://github.com/a/b/actions/runs/9."},
    )  # fmt: skip
    path.write_text(event("/gpu ::error::x"))
    assert main(["ci", "comment"]) == 3
    where, said = world.done[-1]
    assert (where, said["body"].startswith("Not done: that is no command.")) == ("issues/7/comments", True)
    assert "::error" not in said["body"]
    path.write_text(event("/gpu stop", by="eve"))
    world.answers["/repos/a/b/collaborators/eve/permission"] = (200, {"permission": "read"})
    before = len(world.done)
    assert main(["ci", "comment"]) == 3
    assert len(world.done) == before, "a stranger is not answered"
    assert "without the right to write" in capsys.readouterr().err
    monkeypatch.delenv("GITHUB_EVENT_PATH")
    assert main(["ci", "comment"]) == 2


def test_the_workflow_asks_once_more_for_the_commit(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    assert main(["ci", "commit", "--pull", "7", "--sha", HEAD]) == 0
    assert (tmp_path / "output").read_text() == f"sha={HEAD}\n"
    assert main(["ci", "commit", "--pull", "7", "--sha", OTHER]) == 3
    assert main(["ci", "commit", "--pull", "7", "--sha", "main"]) == 3
    assert main(["ci", "commit", "--pull", "x", "--sha", HEAD]) == 2
    assert (tmp_path / "output").read_text() == f"sha={HEAD}\n"
    assert "all 40 digits" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("result", "state"),
    [("success", "success"), ("failure", "failure"), ("cancelled", "error"), ("skipped", "error"), ("", "error")],
)
def test_the_commit_shows_how_it_went(world: World, result: str, state: str) -> None:
    """Only what GitHub calls success is shown as one."""
    assert main(["ci", "status", "--sha", HEAD, "--result", result, "--url", "https://x/1"]) == 0
    ((where, body),) = world.done
    assert (where, body["state"], body["context"], body["target_url"]) == (
        f"statuses/{HEAD}", state, "matrix-gpu", "https://x/1",
    )  # fmt: skip
