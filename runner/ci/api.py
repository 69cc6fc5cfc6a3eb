"""What is asked of GitHub (machines, a workflow run, its jobs), and the issue that is kept there.

Sources: docs.github.com/rest, "List self-hosted runners for a repository" (needs a token with administration: read),
"Get a workflow run" and "List jobs for a workflow run attempt" (actions: read), "List repository issues", "Create an
issue", "Update an issue" (issues: write).
"""

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from runner.errors import MachineError, UsageError

PATIENCE_S = 20
PAGE = 100


class Unavailable(MachineError):
    """GitHub does not answer, or does not let us ask."""


class _Again(Exception):
    """Worth another try: the network, a limit, a server's trouble."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """A self-hosted runner of the repository."""

    name: str
    online: bool
    labels: frozenset[str]
    busy: bool = False
    """It runs a job, and takes the next one after it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobState:
    """A job of a run: `status` is queued, in_progress, completed or some kind of waiting; a completed one concludes."""

    name: str
    status: str
    conclusion: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowRun:
    """A run of a workflow: of which file, at which branch, how far it is."""

    path: str
    head_branch: str | None
    head_repository: dict[str, Any] | None
    event: str
    status: str
    run_attempt: int

    @property
    def file(self) -> str:
        """Its name under .github/workflows/; some answers have the ref after it."""
        return self.path.partition("@")[0].removeprefix(".github/workflows/")


_STATES = TypeAdapter(list[JobState])
_RUN = TypeAdapter(WorkflowRun)


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    """GitHub's API for one repository, as the variables of a workflow's step name it."""

    url: str
    repository: str
    token: str

    @classmethod
    def here(cls, token_from: str) -> "Api":
        """Of the step that runs this; UsageError outside of one."""
        repository = os.environ.get("GITHUB_REPOSITORY", "")
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII):
            raise UsageError("GITHUB_REPOSITORY is not set to OWNER/NAME: this command is for a step of GitHub Actions")
        url = os.environ.get("GITHUB_API_URL") or "https://api.github.com"
        if not re.match(r"https?://", url):
            raise UsageError("GITHUB_API_URL is no web address")
        return cls(url=url.rstrip("/"), repository=repository, token=os.environ.get(token_from, ""))

    def get(self, path: str) -> dict[str, Any]:
        """What is at a path below the repository."""
        return self._get(path)

    def post(self, path: str, body: object, method: str = "POST") -> dict[str, Any]:
        """Ask for something to be done, once, for it may have been done; {} where no words came."""
        headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28",
                   "Authorization": f"Bearer {self.token}"}  # fmt: skip
        url = f"{self.url}/repos/{self.repository}/{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)  # noqa: S310 - see `here`
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:  # noqa: S310
                answer = json.loads(response.read() or b"{}")
        except urllib.error.HTTPError as error:
            error.close()
            raise Unavailable(f"GitHub does not do {path}: HTTP {error.code}") from None
        except (OSError, ValueError) as error:
            raise Unavailable(f"GitHub does not answer to {path}: {error}") from None
        return answer if isinstance(answer, dict) else {}

    def machines(self) -> list[Machine]:
        """All self-hosted runners of the repository; Unavailable where the token may not ask."""
        return [
            Machine(
                name=str(one.get("name", "")),
                online=one.get("status") == "online",
                busy=one.get("busy") is True,
                labels=frozenset(str(label.get("name", "")) for label in one.get("labels", ())),
            )
            for one in self._all("actions/runners", "runners")
        ]

    def jobs(self, run_id: int, attempt: int) -> list[JobState]:
        """The jobs of one attempt at a workflow run."""
        rows = self._all(f"actions/runs/{run_id}/attempts/{attempt}/jobs", "jobs")
        kept = [{key: row.get(key) for key in ("name", "status", "conclusion")} for row in rows]
        try:
            return _STATES.validate_python(kept)
        except ValidationError:
            raise Unavailable("GitHub's list of jobs is none") from None

    def last_states(self, run_id: int, attempt: int, names: Iterable[str]) -> dict[str, JobState]:
        """How each named job last stood, up to this attempt.

        The list of a later attempt may have only those that ran again: GitHub's documentation leaves it open.
        """
        found: dict[str, JobState] = {}
        left = set(names)
        while left and attempt > 0:
            listed = self.jobs(run_id, attempt)
            found |= {name: state for name in left if (state := named(name, listed))}
            left -= found.keys()
            attempt -= 1
        return found

    def run(self, run_id: int) -> WorkflowRun:
        """A workflow run of this repository."""
        answer = self._get(f"actions/runs/{run_id}")
        try:
            return _RUN.validate_python({key: answer.get(key) for key in WorkflowRun.__dataclass_fields__})
        except ValidationError:
            raise Unavailable(f"GitHub's answer about the run {run_id} is none") from None

    def open_issues(self) -> list[dict[str, Any]]:
        """The open issues of the repository, as GitHub has them."""
        return self.rows("issues")

    def rows(self, path: str) -> list[dict[str, Any]]:
        """A list at a path below the repository, all of its pages up to ten."""
        return list(self._all(path, None))

    def write_issue(self, number: int | None, **fields: str) -> None:
        """Open one, or change the one with this number."""
        if number is None:
            self.post("issues", fields)
        else:
            self.post(f"issues/{number}", fields, "PATCH")

    def _all(self, path: str, key: str | None) -> Iterator[dict[str, Any]]:
        for page in range(1, 11):
            answer = self._ask(f"{path}{'&' if '?' in path else '?'}per_page={PAGE}&page={page}")
            rows = answer if key is None else answer.get(key) if isinstance(answer, dict) else None
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise Unavailable(f"GitHub's answer about {path} has no list of {key or path}")
            yield from rows
            if len(rows) < PAGE:
                return

    def _get(self, path: str) -> dict[str, Any]:
        answer = self._ask(path)
        if not isinstance(answer, dict):
            raise Unavailable(f"GitHub's answer about {path} is no object")
        return answer

    def _ask(self, path: str) -> Any:
        try:
            return self._try(f"{self.url}/repos/{self.repository}/{path}")
        except _Again as error:
            raise Unavailable(f"GitHub does not answer about {path.partition('?')[0]}: {error}") from None

    @retry(
        retry=retry_if_exception_type(_Again),
        stop=stop_after_attempt(4),
        wait=wait_exponential(multiplier=0.5, max=10),
        reraise=True,
    )
    def _try(self, url: str) -> Any:
        headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - http or https, see `here`
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:  # noqa: S310
                return json.load(response)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in {401, 403, 404}:
                raise Unavailable(
                    f"the token may not ask ({error.code}) about {url.partition('/repos/')[2].partition('?')[0]}"
                ) from None
            raise _Again(f"HTTP {error.code}") from None
        except (OSError, ValueError) as error:  # no network, no answer in time, no JSON
            raise _Again(str(error) or type(error).__name__) from None


def named(name: str, states: Iterable[JobState]) -> JobState | None:
    """The state of a job of a matrix: its name ends with the name that the plan gave it, in parentheses."""
    return next((state for state in states if state.name.endswith(f"({name})")), None)


def offline(archs: Iterable[str], machines: Iterable[Machine], needed: Iterable[str]) -> dict[str, str]:
    """For each arch that no machine serves now, why: none has its labels, or none of those that do is online."""
    labels, found = frozenset(needed), list(machines)
    why = {}
    for arch in archs:
        mine = [one for one in found if labels | {arch} <= one.labels]
        if not mine:
            why[arch] = f"no machine is registered with the labels {', '.join(sorted(labels | {arch}))}"
        elif not any(one.online for one in mine):
            why[arch] = f"offline: {', '.join(sorted(one.name for one in mine))}"
    return why


def busy(archs: Iterable[str], machines: Iterable[Machine], needed: Iterable[str]) -> dict[str, str]:
    """For each arch whose online machines all run other jobs now, which ones: a job for it is queued behind them."""
    labels, found = frozenset(needed), list(machines)
    why = {}
    for arch in archs:
        mine = [one for one in found if labels | {arch} <= one.labels and one.online]
        if mine and all(one.busy for one in mine):
            why[arch] = ", ".join(sorted(one.name for one in mine))
    return why
