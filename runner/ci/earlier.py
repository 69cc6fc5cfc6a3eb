"""Whether the results of an earlier workflow run may be signed off: GitHub says so, and not what the run left.

Its workflow file ran from the branch that this sign-off runs on, which is protected, for an event that needs the right
to write, in this repository and in no fork of it; and it has ended, so that nothing is added later.
"""

from collections.abc import Mapping

from runner.ci.admission import BY_WRITERS
from runner.ci.api import WorkflowRun
from runner.errors import UsageError
from runner.nearest import quoted

WORKFLOWS = ("matrix-nightly.yml", "release-signoff.yml")
"""Those whose cells run on machines of releases."""


def check(run: WorkflowRun, number: int, environ: Mapping[str, str]) -> None:
    """UsageError says why it may not; `environ` is that of the step that asks."""
    repository, branch = environ.get("GITHUB_REPOSITORY", ""), environ.get("GITHUB_REF_NAME", "")
    theirs = (run.head_repository or {}).get("full_name")
    for well, why in (
        (run.file in WORKFLOWS, f"it is of {quoted(run.file)}, and only {' and '.join(WORKFLOWS)} count"),
        (theirs == repository, f"its commit is of {quoted(theirs or 'nobody')}, and this is {repository}"),
        (run.event in BY_WRITERS, f"the event {quoted(run.event)} started it"),
        (environ.get("GITHUB_REF_PROTECTED") == "true", f"{quoted(branch)} is no protected branch: protect it"),
        (run.head_branch == branch, f"it ran on {quoted(run.head_branch or 'no branch')}, and this is {branch}"),
        (run.status == "completed", f"it is {quoted(run.status)}: wait for its end, or cancel what is still queued"),
    ):
        if not well:
            raise UsageError(f"the run {number} is not taken: {why}")
