"""actionlint over the workflows and the steps of the composite action."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.actions import github_own

PROJECT = Path(__file__).parents[2]
WORKFLOWS = sorted((PROJECT / ".github/workflows").glob("*.yml"))
ACTIONS = sorted((PROJECT / ".github/actions").rglob("action.yml"))
OWN = re.compile(
    r'(?:specifying action|reusable workflow call) "\$/(\.github/[\w./-]+)" '
    r'(?:in invalid format because ref is missing|at "uses" is not following the format)'
)
"""What actionlint 1.7.7 says of `$/`, the own repository at the commit that runs: GitHub's own parser takes it
(`parseFileReference` of @actions/workflow-parser 0.3.61), and this actionlint is older. Nothing else is passed over."""


def found(files: dict[str, str]) -> list[list[Any]]:
    """What it finds, as path, line and message."""
    return github_own.run(github_own.packages(), "actionlint.mjs", files)


def as_workflow(action: str) -> str:
    """A workflow with the steps of a composite action in a job: actionlint reads nothing else."""
    document = yaml.load(action, Loader=yaml.BaseLoader)
    inputs = {name: {"type": "string", **about} for name, about in document["inputs"].items()}
    outputs = {name: about["value"] for name, about in document["outputs"].items()}
    job = {"runs-on": "ubuntu-24.04", "outputs": outputs, "steps": document["runs"]["steps"]}
    return yaml.safe_dump({"on": {"workflow_call": {"inputs": inputs}}, "jobs": {"action": job}}, sort_keys=False)


def test_actionlint_finds_nothing() -> None:
    texts = {path.name: path.read_text() for path in WORKFLOWS}
    texts |= {str(path): as_workflow(path.read_text()) for path in ACTIONS}
    passed = []
    for name, line, message in found(texts):
        own = OWN.match(message)
        assert own, (name, line, message)
        assert (PROJECT / own[1]).exists()
        passed.append(own[1])
    assert len(passed) == sum(text.count("uses: $/") for text in texts.values())


def test_actionlint_would_find_what_is_wrong() -> None:
    """In a workflow and in the action; the one thing that is passed over is in neither."""
    plan = (PROJECT / ".github/workflows/matrix-plan.yml").read_text()
    action = ACTIONS[0].read_text()
    broken = {
        "output": plan.replace("steps.plan.outputs.hosted", "steps.plans.outputs.hosted"),
        "event": plan.replace("workflow_call:", "workflow_cal:"),
        "script": plan.replace("run: runner ci plan", "run: echo ${{ github.event.pull_request.title }}"),
        "action": as_workflow(action.replace("steps.environments.outputs.key", "steps.environment.outputs.key")),
        "input": as_workflow(action.replace("inputs.limit", "inputs.limits")),
    }
    assert {name for name, _, message in found(broken) if not OWN.match(message)} == set(broken)
