"""What happens in a repository: events with the commits that GitHub gives them."""

from typing import Any

from tests.actions.harness import Event

MAIN, HEAD, PUSHED, MERGED, MERGED_LATER = (digit * 40 for digit in "abcde")
"""Commits: of the default branch, of a pull request, and pushed to it later; and the test merge commits of the two."""
MERGE_OF = {HEAD: MERGED, PUSHED: MERGED_LATER}


def pull_request(action: str = "opened", *, head: str = HEAD, label: str = "", sender: str = "stranger") -> Event:
    """From a fork. The tree that runs is that of the pull request, workflows and all."""
    payload = {
        "action": action,
        "number": 7,
        "pull_request": {
            "number": 7,
            "head": {"sha": head, "ref": "topic"},
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
