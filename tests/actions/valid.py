"""Which workflows GitHub takes: the rest is an error before anything of it runs.

Keys and types by GitHub's JSON schema of workflows, as check-jsonschema brings it; what an expression may use where by
docs.github.com, "Contexts reference", "Context availability"; ids and needs by "Workflow syntax for GitHub Actions".
`test_workflows_differ.py` compares this with the parser that GitHub publishes.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import jsonschema
from check_jsonschema.builtin_schemas import get_builtin_schema
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from tests.actions.expressions import Functions, Unknown, check, condition, parts

EVERYWHERE = {"github", "inputs", "vars"}
NEEDS = EVERYWHERE | {"needs"}
JOB = NEEDS | {"strategy", "matrix"}
STEP = JOB | {"steps", "job", "runner", "env"}
SECRETS = {"secrets"}
HASH: Functions = {"hashFiles": lambda first, *more: ""}
OF_A_JOB: Functions = {
    "success": lambda *_: True, "failure": lambda *_: True, "always": lambda: True, "cancelled": lambda: True,
}  # fmt: skip
OF_A_STEP: Functions = {**dict.fromkeys(OF_A_JOB, lambda: True), **HASH}
PLACES: list[tuple[str, set[str], Functions]] = [
    ("run-name", EVERYWHERE, {}),
    ("concurrency", EVERYWHERE, {}),
    ("env", EVERYWHERE | SECRETS, {}),
    ("on/workflow_call/inputs/*/default", EVERYWHERE, {}),
    ("on/workflow_call/outputs/*/value", EVERYWHERE | {"jobs"}, {}),
    ("jobs/*/if", NEEDS, OF_A_JOB),
    ("jobs/*/strategy", NEEDS, {}),
    ("jobs/*/name", JOB, {}),
    ("jobs/*/runs-on", JOB, {}),
    ("jobs/*/timeout-minutes", JOB, {}),
    ("jobs/*/concurrency", JOB, {}),
    ("jobs/*/env", JOB | SECRETS, {}),
    ("jobs/*/with", JOB, {}),
    ("jobs/*/secrets", JOB | SECRETS, {}),
    ("jobs/*/outputs", STEP | SECRETS, {}),
    *((f"jobs/*/steps/*/{key}", STEP | SECRETS, HASH) for key in ("name", "run", "env", "with")),
    ("jobs/*/steps/*/if", STEP, OF_A_STEP),
]
"""The values in which an expression may stand, with all below them."""
BRANCHES, PATHS = {"branches", "branches-ignore"}, {"paths", "paths-ignore"}
OF_A_PULL = {"types"} | BRANCHES | PATHS
EVENTS: dict[str, set[str]] = {
    "issue_comment": {"types"},
    "merge_group": {"types"},
    "pull_request": OF_A_PULL,
    "pull_request_target": OF_A_PULL,
    "push": {"tags", "tags-ignore"} | BRANCHES | PATHS,
    "workflow_call": {"inputs", "secrets", "outputs"},
    "workflow_dispatch": {"inputs"},
    "workflow_run": {"types", "workflows"} | BRANCHES,
}
"""What may be said of an event, beside a schedule."""
ACTIVITIES = {
    "issue_comment": {"created", "edited", "deleted"},
    "merge_group": {"checks_requested"},
    "workflow_run": {"requested", "completed", "in_progress"},
}
CRON = re.compile(r"[\d*/,-]+( [\d*/,-]+){4}")
INPUT_KEYS = {"description", "required", "default", "type", "options", "deprecationMessage"}
TYPES = {
    "string": str, "boolean": bool, "number": object, "choice": str, "environment": str,
}  # fmt: skip
"""Of an input, with what its default may be; GitHub's parser says nothing of a number."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
"""Of a job and of a step."""


@cache
def refuse(name: str, text: str) -> None:
    """Unknown where GitHub would not take the workflow, with the reason."""
    try:
        document = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise Unknown(f"{name}: {error}") from error
    schema = get_builtin_schema("vendor.github-workflows")
    error = jsonschema.exceptions.best_match(jsonschema.Draft7Validator(schema).iter_errors(document))
    if error is not None:
        raise Unknown(f"{name}: {error.json_path}: {error.message}")
    for path, value in leaves(document, ()):
        _refuse_expressions(name, path, value)
    if isinstance(document["on"], Mapping):
        for event, about in document["on"].items():
            _refuse_event(f"{name}: on.{event}", event, about or {})
    _refuse_jobs(name, document["jobs"])


def leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each text with the way to it."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from leaves(one, (*path, str(key)))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from leaves(one, (*path, str(number)))
    elif isinstance(value, str):
        yield path, value


def _refuse_expressions(name: str, path: tuple[str, ...], value: str) -> None:
    is_condition = path[-1] == "if" and path[0] == "jobs"
    if "${{" not in value and not is_condition:
        return
    where = "/".join(path)
    found = next((one for one in PLACES if _is_at(path, one[0])), None)
    if found is None:
        raise Unknown(f"{name}: no expression can stand in {where}")
    _, contexts, functions = found
    try:
        for text in [condition(value)] if is_condition else parts(value)[1::2]:
            check(text, contexts, functions)
    except Unknown as error:
        raise Unknown(f"{name}: {where}: {error}") from error


def _is_at(path: tuple[str, ...], place: str) -> bool:
    wanted = place.split("/")
    return len(path) >= len(wanted) and all(one in ("*", step) for one, step in zip(wanted, path, strict=False))


def _refuse_event(name: str, event: str, about: Any) -> None:
    if event == "schedule":
        if wrong := [one for one in about if set(one) - {"cron", "timezone"} or not CRON.fullmatch(one["cron"])]:
            raise Unknown(f"{name}: {wrong}")
        return
    if event not in EVENTS:
        raise Unknown(f"{name}: an event that is not known here: say in EVENTS what it takes")
    if unknown := set(about) - EVENTS[event]:
        raise Unknown(f"{name}: {sorted(unknown)}")
    types = about.get("types", [])
    types = {types} if isinstance(types, str) else set(types)
    if unknown := types - ACTIVITIES.get(event, types):
        raise Unknown(f"{name}: {sorted(unknown)}")
    _refuse_inputs(name, about)


def _refuse_inputs(name: str, event: Mapping[str, Any]) -> None:
    for key, about in (event.get("inputs") or {}).items():
        about = about or {}
        kind, default = about.get("type", "string"), about.get("default", "")
        if unknown := set(about) - INPUT_KEYS:
            raise Unknown(f"{name}: input {key}: {sorted(unknown)}")
        if kind not in TYPES or not isinstance(about.get("required", False), bool):
            raise Unknown(f"{name}: input {key}: its type is {kind!r}, required is {about.get('required')!r}")
        if isinstance(about.get("description", ""), dict | list):
            raise Unknown(f"{name}: input {key}: its description is no text")
        if "default" in about and "${{" not in str(default) and not isinstance(default, TYPES[kind]):
            raise Unknown(f"{name}: input {key}: the default {default!r} is no {kind}")


def _refuse_jobs(name: str, jobs: Mapping[str, Any]) -> None:
    left = {id_: set(needs_of(job)) for id_, job in jobs.items()}
    for id_, needs in left.items():
        if not NAME.fullmatch(id_) or id_.startswith("__"):
            raise Unknown(f"{name}: {id_!r} is no name of a job")
        if absent := needs - set(left):
            raise Unknown(f"{name}: the job {id_} needs {sorted(absent)}, which are no jobs")
        fail_fast = (jobs[id_].get("strategy") or {}).get("fail-fast", False)
        if not isinstance(fail_fast, bool) and "${{" not in str(fail_fast):
            raise Unknown(f"{name}: job {id_}: fail-fast is {fail_fast!r}")
        _refuse_ids(f"{name}: job {id_}", jobs[id_].get("steps", []))
    while left:
        ready = [id_ for id_, needs in left.items() if not needs & set(left)]
        if not ready:
            raise Unknown(f"{name}: jobs need each other: {sorted(left)}")
        for id_ in ready:
            del left[id_]


def needs_of(job: Mapping[str, Any]) -> list[str]:
    found = job.get("needs") or []
    return [found] if isinstance(found, str) else found


def _refuse_ids(name: str, steps: list[Any]) -> None:
    ids = [step["id"] for step in steps if "id" in step]
    if len(set(ids)) < len(ids):
        raise Unknown(f"{name}: two steps have one id: {ids}")
    if wrong := [id_ for id_ in ids if not NAME.fullmatch(id_) or id_.startswith("__")]:
        raise Unknown(f"{name}: {wrong} are no names of steps")


def refuse_call(name: str, job: Mapping[str, Any], declared: Mapping[str, Any]) -> None:
    """Unknown where a job gives a workflow that it calls what that does not take, or lacks what it needs."""
    kinds: list[tuple[str, str, Callable[[Any], bool]]] = [
        ("inputs", "with", lambda one: str(one.get("required")).lower() == "true"),
        ("secrets", "secrets", lambda one: str((one or {}).get("required")).lower() == "true"),
    ]
    for kind, key, is_required in kinds:
        takes = {one.lower(): about for one, about in (declared.get(kind) or {}).items()}
        gives = {one.lower() for one in job.get(key) or {}}
        if unknown := gives - set(takes):
            raise Unknown(f"{name}: {job['uses']} takes no {kind} {sorted(unknown)}")
        if missing := {one for one, about in takes.items() if is_required(about)} - gives:
            raise Unknown(f"{name}: {job['uses']} needs the {kind} {sorted(missing)}")
