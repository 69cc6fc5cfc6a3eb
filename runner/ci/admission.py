"""Whether a machine with a GPU takes a job: asked by the machine itself, before any other step of the job.

A pull request carries its own workflows, so nothing that stands in a workflow can keep it from a machine. So a machine
takes no job of a pull request at all. It takes jobs of the workflow files that its owner names, as they stand at a
branch or tag that he names, for events that need the right to write. A pull request reaches a machine only through such
a workflow, which is started for one commit (docs/self-hosted.md).

Source: docs.github.com, "Variables": GITHUB_WORKFLOW_REF is the file and the ref of the workflow that runs, and of a
called workflow that of its caller. The variables GITHUB_* are written by GitHub; a workflow cannot set them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from runner.errors import MachineError
from runner.nearest import quoted

BY_WRITERS = frozenset({"push", "schedule", "workflow_dispatch"})
"""Events that need the right to write to the repository."""
PROTECTED = ("refs/heads/", "refs/tags/")


class Refused(MachineError):
    """The machine does not take this job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """Whose jobs a machine takes."""

    repositories: frozenset[str]
    workflows: frozenset[str]
    """Files under .github/workflows/ with a ref, as `matrix-gpu.yml@refs/heads/main`."""


def admit(rules: Rules, environ: Mapping[str, str]) -> str:
    """Why the job may run, in words, with the commit of the workflow; Refused says why not."""
    repository, event = environ.get("GITHUB_REPOSITORY", ""), environ.get("GITHUB_EVENT_NAME", "")
    if repository not in rules.repositories:
        raise Refused(f"jobs of {quoted(repository)} are not taken: this machine serves {_list(rules.repositories)}")
    if event not in BY_WRITERS:
        raise Refused(
            f"the event {quoted(event)} starts no job here: a maintainer's comment `/gpu run SHA` runs one commit of a "
            "pull request"
        )
    ref = environ.get("GITHUB_REF", "")
    if not ref.startswith(PROTECTED):
        raise Refused(f"{event} of {quoted(ref)}: only branches and tags of the repository are run")
    workflow = environ.get("GITHUB_WORKFLOW_REF", "").removeprefix(f"{repository}/.github/workflows/")
    if workflow not in rules.workflows:
        raise Refused(f"the workflow {quoted(workflow)} is not taken: this machine runs {_list(rules.workflows)}")
    return f"{event} of {workflow} at {environ.get('GITHUB_SHA', '')}"


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"
