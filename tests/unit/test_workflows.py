"""The files under .github/, as text: what checkers say, pins, rights, and what must not stand in them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from runner.ci import earlier, telling
from tests.actions.played import PINS

PROJECT = Path(__file__).parents[2]
WORKFLOWS = sorted((PROJECT / ".github/workflows").glob("*.yml"))
ACTIONS = sorted((PROJECT / ".github/actions").rglob("action.yml"))
CALLERS = [path for path in WORKFLOWS if "uses: $/.github/workflows/matrix.yml" in path.read_text()]
TOOLS = Path(sys.executable).parent
HOSTED = "ubuntu-24.04"
WRITES = {
    ("release-signoff.yml", "signoff"): {"id-token", "attestations"},
    ("release-signoff.yml", "asset"): {"contents"},
    ("matrix-nightly.yml", "report"): {"issues"},
    ("matrix-gpu.yml", "report"): {"issues"},
    ("matrix-gpu.yml", "status"): {"statuses", "pull-requests"},
    ("matrix-after.yml", "tell"): {"pull-requests"},
    ("matrix-after.yml", "again"): {"actions"},
    ("matrix-comment.yml", "comment"): {"actions", "pull-requests"},
}
"""The only jobs whose token may write, and what."""


def read(path: Path) -> dict:
    return yaml.load(path.read_text(), Loader=yaml.BaseLoader)


def jobs(path: Path) -> dict[str, dict]:
    return read(path)["jobs"]


def steps(path: Path) -> list[dict]:
    document = read(path)
    if "jobs" in document:
        return [step for job in document["jobs"].values() for step in job.get("steps", [])]
    return document["runs"]["steps"]


def check(*command: str) -> str:
    done = subprocess.run([str(TOOLS / command[0]), *command[1:]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_there_are_workflows_and_an_action() -> None:
    names = {path.name for path in WORKFLOWS}
    assert names == {
        "ci.yml", "matrix.yml", "matrix-plan.yml", "matrix-device.yml", "matrix-pr.yml", "matrix-gpu.yml",
        "matrix-comment.yml", "matrix-nightly.yml", "matrix-after.yml", "release-signoff.yml",
    }  # fmt: skip
    assert len(ACTIONS) == 1


def test_zizmor_finds_nothing() -> None:
    """Two triggers are passed over, each on its own line with the reason. A comment can only be heard by issue_comment,
    and the end of a run by workflow_run."""
    check("zizmor", "--offline", "--no-progress", "--persona", "auditor", str(PROJECT / ".github"))
    ignored = [
        (path.name, line.split("#")[0].strip())
        for path in (*WORKFLOWS, *ACTIONS)
        for line in path.read_text().splitlines()
        if "zizmor:" in line
    ]
    assert ignored == [("matrix-after.yml", "workflow_run:"), ("matrix-comment.yml", "issue_comment:")]
    assert not list(PROJECT.glob("**/zizmor.y*ml"))


def test_a_device_job_asks_for_the_machines_that_the_workflow_says() -> None:
    """The plan of a pull request is made by its own code, so it chooses no machine."""
    device = jobs(PROJECT / ".github/workflows/matrix-device.yml")["device"]
    assert device["runs-on"] == ["${{ inputs.pool }}", "${{ matrix.arch }}"]
    pools = {
        path.name: job["with"]["pool"]
        for path in CALLERS
        for job in jobs(path).values()
        if job.get("uses", "").endswith("/matrix-device.yml")
    }
    assert pools == {
        "matrix-gpu.yml": "gpu-pr", "matrix-nightly.yml": "gpu-release", "release-signoff.yml": "gpu-release",
    }  # fmt: skip


@pytest.mark.parametrize("file", ["matrix-gpu.yml", "matrix-after.yml"])
def test_what_may_write_runs_nothing_of_a_pull_request(file: str) -> None:
    """In the workflow that runs the commit of a stranger and has jobs that may write, and in the one that follows."""
    for name, job in jobs(PROJECT / ".github/workflows" / file).items():
        if (file, name) in WRITES:
            checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
            assert [set(step["with"]) for step in checkouts] == [{"persist-credentials"}], "the default branch"


def test_zizmor_would_find_something(tmp_path: Path) -> None:
    (tmp_path / ".github/workflows").mkdir(parents=True)
    script = "echo ${{ github.event.pull_request.title }}"
    bad = f"on: pull_request_target\njobs: {{a: {{runs-on: x, steps: [{{run: '{script}'}}]}}}}"
    (tmp_path / ".github/workflows/bad.yml").write_text(bad)
    with pytest.raises(AssertionError, match="template-injection"):
        check("zizmor", "--offline", "--no-progress", str(tmp_path / ".github"))


def test_the_schemas_of_github_hold() -> None:
    check("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, WORKFLOWS))
    check("check-jsonschema", "--builtin-schema", "vendor.github-actions", *map(str, ACTIONS))


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: path.name)
def test_each_action_is_pinned_by_a_commit_with_its_version_beside_it(path: Path) -> None:
    for line in re.findall(r"^.*\buses: .*$", path.read_text(), re.MULTILINE):
        if "uses: $/.github/" in line:
            assert (PROJECT / line.split("$/")[1]).exists(), line
            continue
        match = re.fullmatch(r"\s*(?:- )?uses: ([\w.-]+/[\w.-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)", line)
        assert match, line
        assert (PINS[match[1]]["commit"], PINS[match[1]]["version"]) == (match[2], match[3])


@pytest.mark.parametrize("path", [*WORKFLOWS, *ACTIONS], ids=lambda path: path.name)
def test_no_expression_stands_in_a_script(path: Path) -> None:
    assert [step for step in steps(path) if "${{" in step.get("run", "")] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_workflow_runs_strangers_code_with_rights(path: Path) -> None:
    triggers = read(path)["on"]
    names = {triggers} if isinstance(triggers, str) else set(triggers)
    if path.name == "matrix-comment.yml":
        assert names == {"issue_comment"}, "it fetches nothing of the pull request"
        assert "ref:" not in path.read_text()
        return
    if path.name == "matrix-after.yml":
        assert names == {"workflow_run"}, "what it fetches of the run is data"
        assert "ref:" not in path.read_text()
        return
    assert not names & {"pull_request_target", "workflow_run", "issue_comment"}
    if "pull_request" in names:
        assert "secrets" not in path.read_text().replace("without secrets", "").replace("no secrets", "")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_rights_are_the_least(path: Path) -> None:
    document = read(path)
    assert document["permissions"] in ({}, {"contents": "read"})
    for name, job in document["jobs"].items():
        own = job.get("permissions", document["permissions"])
        writes = {scope for scope, right in own.items() if right == "write"}
        assert writes == WRITES.get((path.name, name), set())
        if "uses" not in job:
            assert int(job["timeout-minutes"]) <= 360, "a job has an end"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_token_stays_in_a_checkout(path: Path) -> None:
    for step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] == "false"


def test_only_the_plan_has_the_secret() -> None:
    """And only where it is of a commit of the repository: matrix-gpu.yml plans a commit of a pull request."""
    plan = (PROJECT / ".github/workflows/matrix-plan.yml").read_text()
    assert plan.count("${{ secrets.") == 1
    for name in ("matrix.yml", "matrix-device.yml", "matrix-gpu.yml", "matrix-comment.yml"):
        assert "secrets." not in (PROJECT / ".github/workflows" / name).read_text()
    assert "secrets." not in ACTIONS[0].read_text()
    for path in CALLERS:
        for job in jobs(path).values():
            assert "secrets" not in job or job["uses"].endswith("/matrix-plan.yml")


def test_a_newer_push_cancels_and_a_night_waits() -> None:
    by_name = {path.name: read(path).get("concurrency", {}) for path in WORKFLOWS}
    for name in ("ci.yml", "matrix-pr.yml", "matrix-gpu.yml"):
        assert by_name[name]["cancel-in-progress"] == "true"
    for name in ("matrix-nightly.yml", "release-signoff.yml"):
        assert by_name[name]["cancel-in-progress"] == "false"


def test_nothing_needs_a_job_that_may_wait_for_a_day() -> None:
    """A caller waits for all jobs of what it calls: so those on machines with GPUs are called alone."""
    found = jobs(PROJECT / ".github/workflows/matrix.yml")
    assert found["gate"]["needs"] == ["hosted", "wait"]
    assert found["gate"]["if"] == "always()"
    assert found["gate"]["name"] == "gate", "a name without a value in it: branches are protected by it"
    alone = {path.name for path in WORKFLOWS for job in jobs(path).values() if job.get("runs-on", HOSTED) != HOSTED}
    assert alone == {"matrix-device.yml"}
    assert found["hosted"]["strategy"]["matrix"] == "${{ fromJSON(fromJSON(inputs.plan).outputs.hosted) }}"
    for path in CALLERS:
        for job in jobs(path).values():
            needs = job.get("needs", [])
            assert "device" not in ([needs] if isinstance(needs, str) else needs)
        assert {name for name, job in jobs(path).items() if job.get("uses", "").endswith("/matrix-device.yml")} <= {
            "device"
        }


def test_two_workflows_publish_no_check_of_one_name() -> None:
    """The name of a check has the job of the caller first, and no workflow: `matrix / gate`."""
    names = [
        f"{key} / gate"
        for path in CALLERS
        for key, job in jobs(path).items()
        if job.get("uses", "").endswith("/matrix.yml")
    ]
    assert sorted(names) == ["gpu / gate", "matrix / gate", "nightly / gate", "release / gate"]


def test_the_required_check_is_of_each_pull_request_and_of_the_merge_queue() -> None:
    on = read(PROJECT / ".github/workflows/matrix-pr.yml")["on"]
    assert set(on) == {"pull_request", "merge_group"}


def test_missing_evidence_is_red_where_the_evidence_is_the_purpose() -> None:
    found = {
        path.name: job["with"].get("require_device")
        for path in CALLERS
        for job in jobs(path).values()
        if job.get("uses", "").endswith("/matrix.yml")
    }
    assert found == {
        "matrix-pr.yml": None,
        "matrix-nightly.yml": "${{ vars.GPU_MACHINES != '' }}",
        "matrix-gpu.yml": "true",
        "release-signoff.yml": None,
    }


def test_what_follows_a_run_names_workflows_that_there_are() -> None:
    """By their names, which are not those of their files."""
    (followed,) = [read(path)["on"]["workflow_run"] for path in WORKFLOWS if path.name == "matrix-after.yml"]
    names = {read(path)["name"]: path.name for path in WORKFLOWS}
    assert {names[name] for name in followed["workflows"]} == {telling.PULLS, *earlier.WORKFLOWS}
    assert followed["types"] == ["completed"]
