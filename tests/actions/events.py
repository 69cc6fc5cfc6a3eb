"""What happens in a repository: events with the commits that GitHub gives them."""

from typing import Any

from tests.actions.harness import Event, Run

MAIN, HEAD, PUSHED, MERGED, MERGED_LATER = (digit * 40 for digit in "abcde")
"""Commits: of the default branch, of a pull request, and pushed to it later; and the test merge commits of the two."""
FORK, BRANCH = "stranger/attnmatrix", "topic"
"""Where pull requests come from."""
MERGE_OF = {HEAD: MERGED, PUSHED: MERGED_LATER}


def pull_request(action: str = "opened", *, head: str = HEAD, label: str = "", sender: str = "stranger") -> Event:
    """From a fork. The tree that runs is that of the pull request, workflows and all."""
    payload = {
        "action": action,
        "number": 7,
        "pull_request": {
            "number": 7,
            "head": {"sha": head, "ref": BRANCH},
            "title": "a fix",
            "merge_commit_sha": MERGE_OF[head],
        },
        "sender": {"login": sender},
        **({"label": {"name": label}} if label else {}),
    }
    return Event("pull_request", MERGE_OF[head], "refs/pull/7/merge", payload, from_fork=True)


def comment(body: str, *, by: str = "maintainer", on_pull: bool = True) -> Event:
    """On pull request 7; its workflow is that of the default branch."""
    payload = {
        "action": "created",
        "comment": {"id": 1, "body": body, "user": {"login": by}},
        "issue": {"number": 7, **({"pull_request": {"url": "x"}} if on_pull else {})},
        "repository": {"default_branch": "main"},
        "sender": {"login": by},
    }
    return Event("issue_comment", MAIN, "refs/heads/main", payload)


def dispatched(branch: str, inputs: dict[str, Any]) -> Event:
    """By hand or by the API."""
    assert branch == "main", "the stories know one branch"
    return Event("workflow_dispatch", MAIN, "refs/heads/main", inputs=inputs)


def ended(run: Run) -> Event:
    """That a workflow run has ended. What follows is of the default branch; a run of a fork names no pull request, and
    its commit is the head of the branch. Source: docs.github.com, "Events that trigger workflows", `workflow_run`, and
    "Webhook events and payloads"."""
    assert not run.in_progress
    pull = run.event.payload.get("pull_request")
    repository = FORK if run.event.from_fork else run.github.repository
    bad = any(job.conclusion not in {"success", "skipped"} for job in run.all_jobs)
    about = {
        "id": run.number,
        "name": run.name,
        "event": run.event.name,
        "path": f".github/workflows/{run.workflow}",
        "run_attempt": run.attempt,
        "status": "completed",
        "conclusion": "failure" if bad else "success",
        "head_sha": pull["head"]["sha"] if pull else run.sha,
        "head_branch": pull["head"]["ref"] if pull else run.event.ref.removeprefix("refs/heads/"),
        "head_repository": {"full_name": repository, "owner": {"login": repository.partition("/")[0]}},
        "pull_requests": [],
    }
    payload = {"action": "completed", "workflow_run": about, "repository": {"default_branch": "main"}}
    return Event("workflow_run", MAIN, "refs/heads/main", payload)
