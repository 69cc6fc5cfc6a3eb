"""GitHub's API, as far as `runner ci` asks it: self-hosted runners, and the jobs of a run."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.actions import api_asked
from tests.answering import answering

if TYPE_CHECKING:
    from tests.actions.harness import GitHub


@contextmanager
def served(github: "GitHub") -> Iterator[str]:
    """The address of a server that answers for it."""
    with answering(
        lambda path, authorization: answer(github, path.partition("?")[0], authorization or ""),
        lambda path, authorization, given: api_asked.do(github, path, authorization or "", given),
    ) as address:
        yield address


def answer(github: "GitHub", path: str, authorization: str) -> tuple[int, dict[str, Any]]:
    prefix = f"/repos/{github.repository}/actions"
    if path == f"{prefix}/runners":
        if authorization != f"Bearer {github.secrets.get('RUNNERS_TOKEN')}":
            return 403, {"message": "Resource not accessible by integration"}
        return 200, {
            "runners": [
                {
                    "name": one.name,
                    "status": "online" if one.online else "offline",
                    "busy": one.busy,
                    "labels": [{"name": label} for label in one.labels],
                }
                for one in github.machines
            ]
        }
    if match := re.fullmatch(rf"{prefix}/runs/(\d+)/attempts/(\d+)/jobs", path):
        run = github.runs[int(match[1])]
        token = authorization.removeprefix("Bearer ")
        if run.tokens.get(token, {}).get("actions") not in {"read", "write"}:
            return 403, {"message": "Resource not accessible by integration"}
        attempt = int(match[2])
        jobs = [
            {"name": job.name, "status": job.status, "conclusion": job.conclusion}
            for job in run.all_jobs
            if job.attempt == attempt or not github.lists_only_what_ran_again
        ]
        return 200, {"total_count": len(jobs), "jobs": jobs}
    return api_asked.read(github, path, authorization) or (404, {"message": "Not Found"})
