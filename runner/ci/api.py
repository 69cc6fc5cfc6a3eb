"""The two questions that are asked of GitHub: which self-hosted machines are online, how far the jobs of a run are.

Sources: docs.github.com/rest, "List self-hosted runners for a repository" (needs a token with administration: read) and
"List jobs for a workflow run attempt" (actions: read).
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


@dataclass(frozen=True, kw_only=True, slots=True)
class JobState:
    """A job of a run: `status` is queued, in_progress, completed or some kind of waiting; a completed one concludes."""

    name: str
    status: str
    conclusion: str | None = None


_STATES = TypeAdapter(list[JobState])


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

    def post(self, path: str, body: object) -> dict[str, Any]:
        """Ask for something to be done, once, for it may have been done; {} where no words came."""
        headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28",
                   "Authorization": f"Bearer {self.token}"}  # fmt: skip
        url = f"{self.url}/repos/{self.repository}/{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310 - http or https, see `here`
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

    def _all(self, path: str, key: str) -> Iterator[dict[str, Any]]:
        for page in range(1, 11):
            rows = self._get(f"{path}?per_page={PAGE}&page={page}").get(key)
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise Unavailable(f"GitHub's answer about {path} has no list of {key}")
            yield from rows
            if len(rows) < PAGE:
                return

    def _get(self, path: str) -> dict[str, Any]:
        try:
            answer = self._try(f"{self.url}/repos/{self.repository}/{path}")
        except _Again as error:
            raise Unavailable(f"GitHub does not answer about {path.partition('?')[0]}: {error}") from None
        if not isinstance(answer, dict):
            raise Unavailable(f"GitHub's answer about {path.partition('?')[0]} is no object")
        return answer

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
