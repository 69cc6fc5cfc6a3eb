"""The one comment on a pull request that says how its newest run ended: written once, then kept up to date.

Each workflow keeps one of its own, so that two that end at once do not write over each other, and no text of one can
pass for the other's. What it is made from, the code of the pull request wrote: it is shown as code, without a link.

Sources: docs.github.com/rest, "List pull requests" (`head`: OWNER:BRANCH), "List issue comments", "Create an issue
comment", "Update an issue comment" (pull-requests: write). A comment has 65,536 characters at most.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runner import results
from runner.ci import gather, page
from runner.ci.api import Api
from runner.ci.ended import Ended
from runner.ci.gather import Gathered
from runner.ci.missing import WRITER
from runner.errors import MachineError, RunnerError, UsageError
from runner.reports.markdown import code
from runner.reports.pull_request import LIMIT

PULLS = "matrix-pr.yml"
MOST_BYTES = 300_000_000
"""Of the results that a run left, for them to be read: more than 32 jobs of 2,000 cells give, at 3 kB each."""
BROKEN = (LookupError, TypeError, ValueError, ArithmeticError, AssertionError, RecursionError)
"""What reports raise of results that no run writes: of a stranger's, they must not leave an older comment standing."""
WORDS = {"success": "is green", "failure": "is red", "cancelled": "was cancelled"}


class NoTarget(MachineError):
    """There is no comment to write: the run is of no pull request as it is now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """Whose newest run ended, and how: from GitHub, and not from what the run left."""

    workflow: str
    pull: int
    sha: str
    conclusion: str
    url: str
    attempt: int


def of_pull_request(api: Api, ended: Ended, server: str) -> Told:
    """What is to be told of a run that a pull request started; NoTarget where that moved on, or is not the only one."""
    if ended.file != PULLS or ended.event != "pull_request":
        raise NoTarget(f"the run {ended.id} is no run of {PULLS} for a pull request")
    theirs = ended.head_repository
    if theirs is None or not ended.head_branch:
        raise NoTarget("the repository or the branch of the pull request is gone")
    head = f"{quote(theirs.owner.login, safe='')}:{quote(ended.head_branch, safe='')}"
    found = [
        one["number"]
        for one in api.rows(f"pulls?state=open&head={head}")
        if _is_head(one.get("head"), ended.head_sha, theirs.full_name) and isinstance(one.get("number"), int)
    ]
    if not found:
        raise NoTarget(f"{ended.head_sha} is not the newest commit of an open pull request")
    if len(found) > 1:
        raise NoTarget(f"{ended.head_sha} is of several pull requests, and GitHub does not say which one was run")
    return Told(
        workflow=PULLS.removesuffix(".yml"),
        pull=found[0],
        sha=ended.head_sha,
        conclusion=ended.conclusion or "",
        url=address(server, api, ended.id),
        attempt=ended.run_attempt,
    )


def address(server: str, api: Api, run: int) -> str:
    """Of a workflow run of this repository, for people."""
    return f"{server}/{api.repository}/actions/runs/{run}"


def _is_head(head: object, sha: str, repository: str) -> bool:
    """Whether this is the commit, in this repository: a branch of that name in another one is somebody else's."""
    repo = head.get("repo") if isinstance(head, dict) else None
    return (
        isinstance(head, dict)
        and head.get("sha") == sha
        and isinstance(repo, dict)
        and repo.get("full_name") == repository
    )


def tell(api: Api, told: Told, merged: Path) -> str:
    """Write the comment, or bring it up to date; what was done."""
    text = body(told, merged)
    mine = [one["id"] for one in api.rows(f"issues/{told.pull}/comments") if _is_mine(one, told.workflow)]
    if mine:
        api.post(f"issues/comments/{mine[0]}", {"body": text}, "PATCH")
        return f"brought up to date: the comment on pull request {told.pull}"
    api.post(f"issues/{told.pull}/comments", {"body": text})
    return f"commented on pull request {told.pull}"


def mark(workflow: str) -> str:
    """What a comment of ours begins with; nobody sees it."""
    return f"<!-- attnmatrix: how {workflow} ended -->"


def _is_mine(comment: dict[str, Any], workflow: str) -> bool:
    """By its author too: anybody can begin a comment with the mark."""
    user = comment.get("user")
    return (
        isinstance(user, dict)
        and user.get("login") == WRITER
        and str(comment.get("body", "")).startswith(mark(workflow))
        and isinstance(comment.get("id"), int)
    )


def body(told: Told, merged: Path) -> str:
    """At most LIMIT bytes."""
    how = WORDS.get(told.conclusion, f"ended as {code(told.conclusion or 'nothing')}")
    attempt = f", attempt {told.attempt}" if told.attempt > 1 else ""
    head = (
        f"{mark(told.workflow)}\n**`{told.workflow}` {how}** for `{told.sha}`: [the run]({told.url}){attempt}.\n\n"
        "That much GitHub says. What follows, the run has left, and it ran the code of this pull request.\n\n"
    )
    try:
        return head + page.render(read(merged), {}, title=told.workflow, limit=LIMIT - len(head.encode()), links=False)
    except RunnerError as error:
        why = str(error)
    except BROKEN as error:
        why = f"its results do not fit together ({type(error).__name__})"
    return f"{head}What it left cannot be shown: {code(why, 500)}\n"


def _is_read(path: Path) -> bool:
    """Beside what is read lie reports, which are larger and are not."""
    return path.name in {gather.JOBS_FILE, results.NAME}


def read(merged: Path) -> Gathered:
    """What a gate left, whoever wrote it; UsageError where it is not what `runner ci gather` writes."""
    size = 0
    for folder, _, names in os.walk(merged):
        for path in (Path(folder, name) for name in names):
            if path.is_symlink():
                raise UsageError("it has a link")
            size += path.stat().st_size if _is_read(path) else 0
    if not size:
        raise UsageError("it left no results")
    if size > MOST_BYTES:
        raise UsageError(f"it has {size:,} bytes, and more than {MOST_BYTES:,} are not read")
    return gather.kept(merged)
