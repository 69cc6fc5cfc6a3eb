"""GitHub's API, as far as `runner ci` asks it: self-hosted runners, and the jobs of a run."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.actions import api_asked, api_comments, api_issues, releases_played
from tests.answering import answering

if TYPE_CHECKING:
    from tests.actions.harness import GitHub, Run


@contextmanager
def served(github: "GitHub") -> Iterator[str]:
    """The address of a server that answers for it."""
    with answering(
        lambda path, authorization: answer(github, path, authorization or ""),
        lambda path, authorization, given: (
            api_comments.write(github, path, authorization or "", given)
            or releases_played.upload(github, path, authorization or "", given)
            or api_issues.write(github, path, authorization or "", given)
            or api_asked.do(github, path, authorization or "", given)
        ),
    ) as address:
        yield address


def answer(github: "GitHub", address: str, authorization: str) -> tuple[int, Any]:
    path, _, query = address.partition("?")
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
    if match := re.fullmatch(rf"{prefix}/runs/(\d+)(?:/attempts/(\d+)/jobs)?", path):
        if not api_asked.may(github, authorization, "actions", "read"):
            return api_asked.NO
        run = github.runs.get(int(match[1]))
        if run is None:
            return 404, {"message": "Not Found"}
        if match[2] is None:
            return 200, as_run(run)
        attempt = int(match[2])
        jobs = [
            {"name": job.name, "status": job.status, "conclusion": job.conclusion}
            for job in run.all_jobs
            if job.attempt == attempt or not github.lists_only_what_ran_again
        ]
        return 200, {"total_count": len(jobs), "jobs": jobs}
    return (
        api_comments.read(github, path, query, authorization)
        or api_issues.read(github, path, authorization)
        or api_asked.read(github, path, authorization)
        or (404, {"message": "Not Found"})
    )


def as_run(run: "Run") -> dict[str, Any]:
    """docs.github.com/rest, "Get a workflow run"."""
    return {
        "id": run.number,
        "path": f".github/workflows/{run.workflow}",
        "head_branch": run.event.ref.removeprefix("refs/heads/"),
        "head_repository": {"full_name": "stranger/attnmatrix" if run.event.from_fork else run.github.repository},
        "event": run.event.name,
        "status": "in_progress" if run.in_progress else "completed",
        "run_attempt": run.attempt,
    }
