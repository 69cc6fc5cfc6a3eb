"""Whether a machine with a GPU takes a job: asked by the machine itself, before the first step of any job.

A pull request carries its own workflows, so nothing that stands in a workflow can keep it from a machine. What it
cannot write is the event that GitHub records: this looks at nothing else. Source: docs.github.com, "Running scripts
before or after a job": such a script finds the event in GITHUB_EVENT_PATH, and the job does not run where it fails.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import MachineError
from runner.nearest import quoted

LABEL = "gpu"
"""Put on a pull request by a maintainer: the commit that it has at that moment may run on machines with GPUs."""
BY_WRITERS = frozenset({"push", "schedule", "workflow_dispatch"})
"""Events that need the right to write to the repository."""


class Refused(MachineError):
    """The machine does not take this job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """Whose jobs a machine takes."""

    repositories: frozenset[str]
    maintainers: frozenset[str] = frozenset()
    """Who may put the label; empty: everyone whom GitHub lets (the role Triage and above)."""
    label: str = LABEL


def admit(rules: Rules, environ: Mapping[str, str]) -> str:
    """Why the job may run, in words, with the one commit that it may run; Refused says why not."""
    repository, event = environ.get("GITHUB_REPOSITORY", ""), environ.get("GITHUB_EVENT_NAME", "")
    if repository not in rules.repositories:
        raise Refused(f"jobs of {quoted(repository)} are not taken: this machine serves {_list(rules.repositories)}")
    if event in BY_WRITERS:
        ref = environ.get("GITHUB_REF", "")
        if not ref.startswith(("refs/heads/", "refs/tags/")):
            raise Refused(f"{event} of {quoted(ref)}: only branches and tags of the repository are run")
        return f"{event} of {ref} at {environ.get('GITHUB_SHA', '')}"
    if event == "pull_request":
        return _labelled(rules, _event(environ))
    raise Refused(f"the event {quoted(event)} starts no job here: see docs/self-hosted.md for those that do")


def _labelled(rules: Rules, event: Mapping[str, Any]) -> str:
    """A label authorises the commit that the pull request had when it was put: a later push is another event."""
    action, number = event.get("action"), event.get("number")
    if action != "labeled":
        raise Refused(
            f"pull request {quoted(number)} was {quoted(action)}: only the commit that it has when a maintainer puts "
            f"the label {quoted(rules.label)} is run; look at the commit, then put the label again"
        )
    label, sender = _text(event, "label", "name"), _text(event, "sender", "login")
    if label != rules.label:
        raise Refused(f"the label {quoted(label)} authorises nothing: {quoted(rules.label)} does")
    if rules.maintainers and sender.lower() not in {name.lower() for name in rules.maintainers}:
        raise Refused(f"{quoted(sender)} put the label, and is none of {_list(rules.maintainers)}")
    head = _text(event, "pull_request", "head", "sha")
    if not head:
        raise Refused("the event names no commit")
    return f"pull request {number} at {head}, as {sender} authorised"


def _event(environ: Mapping[str, str]) -> Mapping[str, Any]:
    path = environ.get("GITHUB_EVENT_PATH", "")
    try:
        found = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise Refused(f"the event cannot be read from GITHUB_EVENT_PATH={quoted(path)}: {error}") from None
    if not isinstance(found, dict):
        raise Refused("the event is no object")
    return found


def _text(event: Mapping[str, Any], *path: str) -> str:
    found: Any = event
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def _list(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"
