"""The actions that our workflows use, played by local copies; what each takes and gives is in pins.json, from its own
action.yml at the commit that is pinned."""

import fnmatch
import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.actions import environments
from tests.actions.expressions import Unknown, text_of

if TYPE_CHECKING:
    from tests.actions.harness import Job

PINS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("pins.json").read_text())


MOST_DAYS = 90
"""That the settings of this repository allow: a longer time is cut down. Source: README of upload-artifact."""


class ActionFailed(Exception):
    """The action ends red, as the real one would."""


def play(uses: str, given: Mapping[str, Any], job: "Job") -> dict[str, str]:
    """Check the name, the commit and the inputs, then do what the action does; gives its outputs."""
    name, _, commit = uses.partition("@")
    pin = PINS.get(name)
    if pin is None or pin["commit"] != commit:
        raise Unknown(f"the action {uses}")
    if unknown := set(given) - set(pin["inputs"]):
        raise Unknown(f"{name} has no inputs {sorted(unknown)}")
    inputs = {key: text_of(value) for key, value in given.items()}
    if missing := [key for key in pin["required"] if not inputs.get(key)]:
        raise ActionFailed(f"{name}: input required and not supplied: {missing}")
    outputs = ACTIONS[name](inputs, job)
    assert set(outputs) <= set(pin["outputs"])
    return outputs


def _checkout(inputs: Mapping[str, str], job: "Job") -> dict[str, str]:
    assert inputs.get("persist-credentials") == "false", "a token would stay in the checkout"
    repository = inputs.get("repository", job.run.github.repository)
    commit = inputs.get("ref") or job.run.sha
    tree = job.run.github.trees.get((repository, commit))
    if tree is None:
        raise ActionFailed(f"checkout: {repository} has no {commit}")
    place = job.workspace / inputs.get("path", "")
    for old in place.iterdir() if place.is_dir() and not inputs.get("path") else ():
        # git clean -ffdx, less what the harness keeps for a hosted machine's cache
        old.unlink() if old.is_symlink() or old.is_file() else shutil.rmtree(old)
    if (tree / ".git").is_dir():
        _fetch(tree, place, inputs.get("fetch-depth", "1"))
    else:
        shutil.copytree(tree, place, dirs_exist_ok=True, symlinks=True)
    job.checked_out.append((repository, commit))
    return {"commit": commit, "ref": inputs.get("ref", "")}


def _fetch(tree: Path, place: Path, depth: str) -> None:
    """What is checked out there, with so many commits of its history: one, unless more are asked for (README of the
    action, `fetch-depth`)."""
    place.mkdir(parents=True, exist_ok=True)
    git = ["git", "-C", str(place)]
    for words in (
        ["init", "--quiet"],
        ["-c", "protocol.file.allow=always", "fetch", "--quiet", f"--depth={depth}", f"file://{tree}", "HEAD"],
        ["checkout", "--quiet", "--force", "FETCH_HEAD"],
    ):
        subprocess.run([*git, *words], check=True)


def _setup_python(inputs: Mapping[str, str], job: "Job") -> dict[str, str]:
    assert inputs["python-version"] == "3.11"
    return {"python-version": "3.11"}


def _cache(inputs: Mapping[str, str], job: "Job") -> dict[str, str]:
    """A hit: what was built on this machine is there."""
    assert inputs["path"] == ".runner/envs"
    environments.build()
    job.run.github.cache_keys.append(inputs["key"])
    (job.workspace / ".runner").mkdir(exist_ok=True)
    (job.workspace / inputs["path"]).symlink_to(job.run.github.environments)
    return {"cache-hit": "true"}


def _upload(inputs: Mapping[str, str], job: "Job") -> dict[str, str]:
    name, source = inputs["name"], job.workspace / inputs["path"]
    if any(char in name for char in '":<>|*?\r\n\\/'):
        raise ActionFailed(f"upload-artifact: the name {name!r} is not valid")
    files = [path for path in source.rglob("*") if path.is_file()] if source.is_dir() else []
    if not files:
        if inputs.get("if-no-files-found", "warn") == "error":
            raise ActionFailed(f"upload-artifact: no files were found at {source}")
        return {}
    if name in job.run.artifacts and inputs.get("overwrite") != "true":
        raise ActionFailed(f"upload-artifact: an artifact named {name} already exists")
    target = job.run.folder / "artifacts" / name
    shutil.rmtree(target, ignore_errors=True)
    for path in files:
        relative = path.relative_to(source)
        if any(part.startswith(".") for part in relative.parts):  # include-hidden-files is false
            continue
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / relative)
    job.run.artifacts[name] = target
    if days := int(inputs.get("retention-days") or 0):  # 0 is what the repository's settings say
        job.run.kept_days[name] = min(days, MOST_DAYS)
    return {"artifact-id": str(len(job.run.artifacts))}


def _download(inputs: Mapping[str, str], job: "Job") -> dict[str, str]:
    """By name, or where a pattern matches one, into the path itself; else each into a folder of its name.

    That nothing matches is no error. Source: src/download-artifact.ts at the pinned commit, `artifacts.length === 1`.
    """
    place = job.workspace / inputs.get("path", "")
    artifacts = _artifacts_of(inputs["run-id"], inputs, job) if "run-id" in inputs else job.run.artifacts
    if "name" in inputs:
        if inputs["name"] not in artifacts:
            raise ActionFailed(f"download-artifact: artifact not found for name: {inputs['name']}")
        shutil.copytree(artifacts[inputs["name"]], place, dirs_exist_ok=True)
        return {"download-path": str(place)}
    chosen = {name: source for name, source in artifacts.items() if fnmatch.fnmatchcase(name, inputs["pattern"])}
    flat = len(chosen) == 1 or inputs.get("merge-multiple") == "true"
    for name, source in chosen.items():
        shutil.copytree(source, place if flat else place / name, dirs_exist_ok=True)
    return {"download-path": str(place)}


def _artifacts_of(number: str, inputs: Mapping[str, str], job: "Job") -> Mapping[str, Path]:
    """Of another run, which takes a token that may read runs."""
    if not inputs.get("github-token") or job.permissions.get("actions") not in {"read", "write"}:
        raise ActionFailed("download-artifact: Resource not accessible by integration")
    if not number.isdecimal():
        raise ActionFailed(f"download-artifact: the run-id {number!r} is no number")
    found = job.run.github.runs.get(int(number))
    if found is None:
        raise ActionFailed(f"download-artifact: Not Found: run {number}")
    return found.artifacts


def _attest(inputs: Mapping[str, str], job: "Job") -> dict[str, str]:
    for need in ("id-token", "attestations"):
        if job.permissions.get(need) != "write":
            raise ActionFailed(f"attest: the job lacks the permission {need}: write")
    patterns = inputs["subject-path"].split()
    subjects = [path for pattern in patterns for path in job.workspace.glob(pattern) if path.is_file()]
    if not subjects:
        raise ActionFailed("attest: no subject was found")
    job.run.attested += [path.name for path in subjects]
    bundle = job.folder / "attestation.json"
    bundle.write_text(json.dumps({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in subjects}))
    return {"attestation-id": "1", "bundle-path": str(bundle)}


ACTIONS = {
    "actions/checkout": _checkout,
    "actions/setup-python": _setup_python,
    "actions/cache": _cache,
    "actions/upload-artifact": _upload,
    "actions/download-artifact": _download,
    "actions/attest": _attest,
}
