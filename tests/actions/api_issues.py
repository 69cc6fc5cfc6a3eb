"""GitHub's API, as far as issues are read and written.

Sources: docs.github.com/rest, "List repository issues", "Create an issue", "Update an issue" (issues: write).
"""

import re
from typing import TYPE_CHECKING, Any

from tests.actions.api_asked import NO, may

if TYPE_CHECKING:
    from tests.actions.harness import GitHub


def read(github: "GitHub", path: str, authorization: str) -> tuple[int, Any] | None:
    """None where the path is of something else."""
    if path != f"/repos/{github.repository}/issues":
        return None
    if not may(github, authorization, "issues", "read"):
        return NO
    return 200, [one for one in github.issues if one["state"] == "open"]


def write(github: "GitHub", path: str, authorization: str, given: dict[str, Any]) -> tuple[int, Any] | None:
    match = re.fullmatch(rf"/repos/{github.repository}/issues(?:/(\d+))?", path)
    if match is None:
        return None
    if not may(github, authorization, "issues", "write"):
        return NO
    if match[1] is None:
        made = {"number": len(github.issues) + 1, "state": "open", "user": {"login": "github-actions[bot]"}, **given}
        github.issues.append(made)
        return 201, made
    (found,) = [one for one in github.issues if one["number"] == int(match[1])]
    found |= given
    return 200, found
