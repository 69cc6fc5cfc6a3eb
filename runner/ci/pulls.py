"""What a maintainer's comment on a pull request starts: `/gpu run SHA`, `/gpu rerun`, `/gpu stop`.

A comment is a stranger's text: its words are compared with what is known here, and never shown again or run. Who wrote
it, and on which pull request, GitHub's event says.

Sources: docs.github.com/rest, "Get repository permissions for a user", "Get a pull request", "Create a workflow
dispatch event" (`return_run_details` of 2026-02-19), "List workflow runs for a workflow", "Re-run failed jobs from a
workflow run", "Cancel a workflow run", "Create a commit status".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import Field, TypeAdapter, ValidationError

from runner.ci.api import PAGE, Api, Unavailable
from runner.errors import MachineError, UsageError

WORKFLOW = "matrix-gpu.yml"
CONTEXT = "matrix-gpu"
"""The name of the status."""
MAY = frozenset({"write", "maintain", "admin"})
SHA = r"[0-9a-f]{40}"
HOW = "Commands: `/gpu run SHA` (all 40 digits of the commit that you read), `/gpu rerun`, `/gpu stop`."


class Declined(MachineError):
    """A command of somebody who may give it, which is not carried out; he is told why."""


class NotAllowed(MachineError):
    """A command of somebody who may not give one. Nobody answers him, or strangers could make us write comments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _User:
    login: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Words:
    body: str | None
    user: _User


@dataclass(frozen=True, kw_only=True, slots=True)
class _Issue:
    number: Annotated[int, Field(gt=0)]
    pull_request: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Repository:
    default_branch: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Comment:
    """An event `issue_comment`, as far as it is read."""

    comment: _Words
    issue: _Issue
    repository: _Repository


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run of matrix-gpu.yml for a pull request; its name says which, see `run-name` there."""

    number: int
    sha: str
    url: str
    ended: bool
    conclusion: str


_COMMENT = TypeAdapter(Comment)


def comment_of(event: str) -> Comment:
    """From GITHUB_EVENT_PATH; UsageError where it is no comment on a pull request."""
    try:
        found = _COMMENT.validate_json(event)
    except ValidationError:
        raise UsageError("GITHUB_EVENT_PATH holds no event issue_comment: this command is for that workflow") from None
    if found.issue.pull_request is None:
        raise UsageError("the comment is on an issue, and commands are for pull requests")
    return found


def obey(api: Api, asked: Comment) -> str:
    """Do what it asks for; what to answer."""
    may_command(api, asked.comment.user.login)
    words = ((asked.comment.body or "").splitlines() or [""])[0].split()
    match words:
        case ["/gpu", "run", sha]:
            return _run(api, asked, sha)
        case ["/gpu", "rerun"]:
            return _rerun(api, asked)
        case ["/gpu", "stop"]:
            return _stop(api, asked)
        case _:
            raise Declined(f"that is no command. {HOW}")


def may_command(api: Api, login: str) -> None:
    """NotAllowed unless this account has the right to write to the repository."""
    has = str(api.get(f"collaborators/{quote(login, safe='')}/permission").get("permission"))
    if has not in MAY:
        raise NotAllowed("a command of somebody without the right to write to this repository: nothing is done")


def check_head(api: Api, pull: int, sha: str) -> str:
    """The commit, where it is the newest one of the pull request. All digits: a part of them could be of two commits,
    made for that by one who shows the one and pushes the other."""
    if not re.fullmatch(SHA, sha, re.ASCII):
        raise Declined(f"all 40 digits of the commit that you read are needed. {HOW}")
    found = api.get(f"pulls/{pull}")
    head, state = found.get("head"), found.get("state")
    if state != "open":
        raise Declined(f"pull request {pull} is not open")
    if not isinstance(head, dict) or head.get("sha") != sha:
        raise Declined(
            f"{sha} is not the newest commit of pull request {pull}: read what was pushed, then name that one"
        )
    return sha


def show_status(api: Api, sha: str, result: str, url: str) -> str:
    """Of a commit, by the result of the job `gpu`: what a pull request shows; the state in GitHub's words."""
    state = {"success": "success", "failure": "failure"}.get(result, "error")
    words = {"success": "as expected", "failure": "red"}.get(result, "cancelled, or did not run")
    body = {"state": state, "context": CONTEXT, "description": f"machines with GPUs: {words}", "target_url": url}
    api.post(f"statuses/{sha}", body)
    return state


def runs_of(api: Api, pull: int, branch: str) -> list[Run]:
    """The newest first."""
    path = f"actions/workflows/{WORKFLOW}/runs?event=workflow_dispatch&branch={quote(branch, safe='')}&per_page={PAGE}"
    rows = api.get(path).get("workflow_runs")
    if not isinstance(rows, list):
        raise Unavailable(f"GitHub's list of runs of {WORKFLOW} is none")
    found = []
    for row in rows:
        named = re.fullmatch(rf"pull {pull} at ({SHA})", str(row.get("display_title", "")), re.ASCII)
        if named and isinstance(row.get("id"), int):
            found.append(
                Run(
                    number=row["id"],
                    sha=named[1],
                    url=str(row.get("html_url", "")),
                    ended=row.get("status") == "completed",
                    conclusion=str(row.get("conclusion")),
                )
            )
    return sorted(found, key=lambda run: -run.number)


def _run(api: Api, asked: Comment, sha: str) -> str:
    pull = asked.issue.number
    inputs = {"pull": str(pull), "sha": check_head(api, pull, sha)}
    body = {"ref": asked.repository.default_branch, "inputs": inputs, "return_run_details": True}
    made = api.post(f"actions/workflows/{WORKFLOW}/dispatches", body)
    return f"Started for {sha}: {_link(made, 'a run of ' + WORKFLOW)}."


def _rerun(api: Api, asked: Comment) -> str:
    pull = asked.issue.number
    newest = next(iter(runs_of(api, pull, asked.repository.default_branch)), None)
    if newest is None:
        raise Declined(f"nothing was run for this pull request. {HOW}")
    if not newest.ended:
        raise Declined(f"it still runs: {newest.url}")
    if newest.conclusion == "success":
        raise Declined(f"nothing failed: {newest.url}")
    check_head(api, pull, newest.sha)
    api.post(f"actions/runs/{newest.number}/rerun-failed-jobs", {})
    return f"What failed runs again for {newest.sha}: {newest.url}."


def _stop(api: Api, asked: Comment) -> str:
    going = [run for run in runs_of(api, asked.issue.number, asked.repository.default_branch) if not run.ended]
    if not going:
        raise Declined("nothing runs for this pull request")
    for run in going:
        api.post(f"actions/runs/{run.number}/cancel", {})
    return f"Stopped: {', '.join(run.url for run in going)}."


def _link(made: Mapping[str, Any], otherwise: str) -> str:
    """Where GitHub does not name the run (older servers), the page of the workflow does."""
    return str(made.get("html_url") or otherwise)
