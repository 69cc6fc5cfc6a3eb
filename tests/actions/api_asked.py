"""GitHub's API, as far as a comment on a pull request makes `runner ci` ask it, and to do something.

Sources: docs.github.com/rest, the pages named in runner/ci/pulls.py. What is started begins after the answer.
"""

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tests.actions.events import dispatched

if TYPE_CHECKING:
    from tests.actions.harness import GitHub, Run

NO = (403, {"message": "Resource not accessible by integration"})
STRENGTH = {"none": 0, "read": 1, "write": 2}


def read(github: "GitHub", path: str, authorization: str) -> tuple[int, dict[str, Any]] | None:
    """None where the path is of something else."""
    prefix = f"/repos/{github.repository}"
    if match := re.fullmatch(rf"{prefix}/collaborators/([^/]+)/permission", path):
        return 200, {"permission": github.rights.get(unquote(match[1]), "none")}
    if match := re.fullmatch(rf"{prefix}/pulls/(\d+)", path):
        if not may(github, authorization, "pull-requests", "read"):
            return NO
        head = github.heads.get(int(match[1]))
        return (200, {"state": "open", "head": {"sha": head}}) if head else (404, {"message": "Not Found"})
    if match := re.fullmatch(rf"{prefix}/actions/workflows/([\w.-]+)/runs", path):
        if not may(github, authorization, "actions", "read"):
            return NO
        return 200, {"workflow_runs": [row(run) for run in github.runs.values() if run.workflow == match[1]]}
    return None


def row(run: "Run") -> dict[str, Any]:
    ended = not run.in_progress
    bad = any(job.conclusion not in {"success", "skipped"} for job in run.all_jobs)
    return {
        "id": run.number,
        "display_title": run.title,
        "status": "completed" if ended else "in_progress",
        "conclusion": ("failure" if bad else "success") if ended else None,
        "html_url": address(run.github, run.number),
    }


def address(github: "GitHub", number: int) -> str:
    return f"https://github.com/{github.repository}/actions/runs/{number}"


def do(github: "GitHub", path: str, authorization: str, given: dict[str, Any]) -> tuple[int, Any]:
    prefix = f"/repos/{github.repository}"
    if match := re.fullmatch(rf"{prefix}/statuses/([0-9a-f]{{40}})", path):
        if not may(github, authorization, "statuses", "write"):
            return NO
        github.statuses.append((match[1], given["context"], given["state"], given["target_url"]))
        return 201, {}
    if not may(github, authorization, "actions", "write"):
        return NO
    if match := re.fullmatch(rf"{prefix}/actions/workflows/([\w.-]+)/dispatches", path):
        event = dispatched(given["ref"], given["inputs"])
        github.asked.append(lambda when=None: github.trigger(match[1], event, when))
        number = len(github.runs) + 1
        return 200, {"workflow_run_id": number, "html_url": address(github, number)}
    if match := re.fullmatch(rf"{prefix}/actions/runs/(\d+)/(rerun-failed-jobs|cancel)", path):
        run = github.runs[int(match[1])]

        def later(when: Any = None) -> "Run":
            run.cancel_when = when
            if match[2] == "cancel":
                run.cancel()
            else:
                run.rerun_failed()
            return run

        github.asked.append(later)
        return (202 if match[2] == "cancel" else 201), {}
    return 404, {"message": "Not Found"}


def may(github: "GitHub", authorization: str, what: str, right: str) -> bool:
    """Whether the newest job with this token has the right."""
    token = authorization.removeprefix("Bearer ")
    found = next((run.tokens[token] for run in reversed(github.runs.values()) if token in run.tokens), {})
    return STRENGTH[found.get(what, "none")] >= STRENGTH[right]
