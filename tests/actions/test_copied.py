"""Forks, copies and the example of docs/self-hosted.md: no variable is there, and the index comes with the files."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from runner import results
from runner.model import Evidence, State
from tests.actions.conftest import EXCLUDED, OWN, PASSES, PROJECT, Build
from tests.actions.events import MERGED, dispatched, pull_request
from tests.actions.strangers import Tree, told

pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]

GATE = "matrix / gate"


@pytest.mark.parametrize("index", ["https://wheels.example/cpu", ""])
def test_a_fork_without_variables_takes_the_index_from_the_repository(tree: Tree, build: Build, index: str) -> None:
    """And where there is none, the log says what to write where."""
    main = tree("main", EXCLUDED)
    (main / ".github/pip-index").write_text(f"# the index\n{index}\n")
    github = build(main)
    github.vars["PIP_EXTRA_INDEX_URL"] = "https://not-for-forks.example"
    github.trees[OWN, MERGED] = main
    run = github.trigger("matrix-pr.yml", pull_request())
    assert told(run)[GATE] == "success", run.job(GATE).log
    hosted = run.job("matrix / hosted (hosted)")
    assert f"PIP_EXTRA_INDEX_URL={index}" in hosted.seen_by_steps[-1].splitlines()
    assert ("write its address as one line into .github/pip-index and commit it" in hosted.log) == (not index)


def the_example(tmp_path: Path, cells: str) -> tuple[Path, tuple[str, str]]:
    page = (PROJECT / "docs/self-hosted.md").read_text()
    (example,) = re.findall(r"^```yml\n(# \.github/workflows/attention\.yml\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    commit = re.search(r"uses: (\S+)/\.github/actions/runner@([0-9a-f]{40})", example)
    filters = re.search(r'filter: (".*")', example)
    assert commit
    assert filters
    example = example.replace(filters[1], json.dumps(cells))
    empty = tmp_path / "empty"
    (empty / ".github/workflows").mkdir(parents=True)
    (empty / ".github/workflows/attention.yml").write_text(example.replace("on: push", "on: [push, pull_request]"))
    return empty, (commit[1], commit[2])


@pytest.mark.parametrize(
    ("fork", "cells", "told_of_it"),
    [
        (False, ",".join(EXCLUDED), (State.UNSUPPORTED, Evidence.CPU)),
        (True, "0.32.0-flash_attn-sm90-hybrid_on-k0-c64-solo", (State.PASS, Evidence.EMULATED)),
    ],
)
def test_the_example_works_in_an_empty_repository_and_from_a_fork(
    tmp_path: Path, tree: Tree, build: Build, fork: bool, cells: str, told_of_it: tuple[State, Evidence]
) -> None:
    """No variable is there: the index comes with the action. A cell runs in the harder of the two, a fork."""
    ours = tree("main", PASSES)
    empty, commit = the_example(tmp_path, cells)
    (ours / ".github/pip-index").write_text("# the index\nhttps://wheels.example/cpu\n")
    github = build(empty)
    github.vars.clear()
    github.trees[OWN, MERGED] = empty
    github.trees[commit] = ours
    event = pull_request() if fork else dispatched("main", {})
    event.name = "pull_request" if fork else "push"
    run = github.trigger("attention.yml", event)
    (job,) = run.all_jobs
    assert job.conclusion == "success", job.log
    assert "exit 0: everything as expected" in job.summary
    assert "PIP_EXTRA_INDEX_URL=https://wheels.example/cpu" in job.seen_by_steps[-1]
    (row,) = results.read(run.artifacts["attnmatrix"])
    assert (row.state, row.evidence) == told_of_it


@pytest.mark.parametrize(
    ("file", "env", "line", "says"),
    [
        ("# words\nhttps://a.example/x\n", {}, "PIP_EXTRA_INDEX_URL=https://a.example/x\n", ""),
        (
            "https://a.example/x\n",
            {"PIP_EXTRA_INDEX_URL": "https://b.example"},
            "PIP_EXTRA_INDEX_URL=https://b.example\n",
            "",
        ),
        (
            "",
            {"PIP_EXTRA_INDEX_URL": "https://b.example", "INDEX": "https://c.example"},
            "PIP_EXTRA_INDEX_URL=https://c.example\n",
            "",
        ),
        ("# words\n", {}, "", "as one line into .github/pip-index and commit it"),
        (None, {"PIP_EXTRA_INDEX_URL": ""}, "", "as one line into .github/pip-index and commit it"),
        ("# words\n", {"PIP_FIND_LINKS": "/wheels"}, "", ""),
        ("ftp://a.example\n", {}, "", "as one line into .github/pip-index"),
        ("", {"INDEX": "https://a.example\nPATH=/evil"}, None, "the index is no address of one line"),
        ("https://a.example /evil\n", {}, None, "the index is no address of one line"),
    ],
)
def test_the_index_is_an_input_a_variable_or_a_file(
    tmp_path: Path, file: str | None, env: dict[str, str], line: str | None, says: str
) -> None:
    """In that order; where there is none, the message says what to write where."""
    (tmp_path / ".github").mkdir()
    if file is not None:
        (tmp_path / ".github/pip-index").write_text(file)
    script = PROJECT / ".github/actions/runner/index.sh"
    done = subprocess.run(
        [script, tmp_path], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", **env}
    )
    assert (done.returncode, done.stdout) == ((0, line) if line is not None else (2, ""))
    assert says in done.stderr
    assert bool(says) == bool(done.stderr)
