"""A workflow run that ended, as GitHub tells the workflow that follows it.

GitHub writes the event, but what it says of a pull request of a fork, a stranger chose: branch, repository, and the
workflow's own name, under which he may have put another file. A run of a fork names no pull request.

Source: docs.github.com, "Webhook events and payloads", `workflow_run`.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from runner.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class _Owner:
    login: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Repository:
    full_name: str
    owner: _Owner


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The run; its commit is the head of the pull request, and not the test merge commit."""

    id: Annotated[int, Field(gt=0)]
    run_attempt: Annotated[int, Field(gt=0)]
    event: str
    path: str
    head_sha: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    head_branch: str | None
    head_repository: _Repository | None
    """None where it was removed since."""
    conclusion: str | None

    @property
    def file(self) -> str:
        """The workflow's name under .github/workflows/."""
        return self.path.partition("@")[0].removeprefix(".github/workflows/")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Event:
    workflow_run: Ended


_EVENT = TypeAdapter(_Event)


def ended_of(event: str) -> Ended:
    """From GITHUB_EVENT_PATH; UsageError where it is no such event."""
    try:
        return _EVENT.validate_json(event).workflow_run
    except ValidationError:
        raise UsageError("GITHUB_EVENT_PATH holds no event workflow_run: this command is for that workflow") from None
