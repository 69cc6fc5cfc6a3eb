"""GitHub's API, as far as pull requests are listed and comments on them are read and written.

Sources: docs.github.com/rest, "List pull requests" (`head`: OWNER:BRANCH), "List issue comments", "Create an issue
comment", "Update an issue comment" (pull-requests: read, or write).
"""

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from tests.actions.api_asked import NO, may
from tests.actions.events import BRANCH, FORK

if TYPE_CHECKING:
    from tests.actions.harness import GitHub

MOST = 65_536
"""Characters of a comment."""


def read(github: "GitHub", path: str, query: str, authorization: str) -> tuple[int, Any] | None:
    """None where the path is of something else."""
    prefix = f"/repos/{github.repository}"
    comments = re.fullmatch(rf"{prefix}/issues/(\d+)/comments", path)
    if path != f"{prefix}/pulls" and comments is None:
        return None
    if not may(github, authorization, "pull-requests", "read"):
        return NO
    if comments:
        return 200, [
            {"id": number, "body": body, "user": {"login": "github-actions[bot]"}}
            for number, (pull, body) in enumerate(github.comments, 1)
            if pull == int(comments[1])
        ]
    asked = parse_qs(query, strict_parsing=True)
    if asked["head"] != [f"{FORK.partition('/')[0]}:{BRANCH}"] or asked["state"] != ["open"]:
        return 200, []
    return 200, [
        {"number": number, "state": "open", "head": {"sha": sha, "ref": BRANCH, "repo": {"full_name": FORK}}}
        for number, sha in github.heads.items()
    ]


def write(github: "GitHub", path: str, authorization: str, given: dict[str, Any]) -> tuple[int, Any] | None:
    prefix = f"/repos/{github.repository}/issues"
    new, old = re.fullmatch(rf"{prefix}/(\d+)/comments", path), re.fullmatch(rf"{prefix}/comments/(\d+)", path)
    if new is None and old is None:
        return None
    if not may(github, authorization, "pull-requests", "write"):
        return NO
    if len(given["body"]) > MOST:
        return 422, {"message": "Validation Failed"}
    if new:
        github.comments.append((int(new[1]), given["body"]))
        return 201, {"id": len(github.comments)}
    assert old
    number = int(old[1])
    github.comments[number - 1] = (github.comments[number - 1][0], given["body"])
    return 200, {"id": number}
