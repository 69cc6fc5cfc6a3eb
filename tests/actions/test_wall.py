"""Who reaches a machine with a GPU, and who does not: pull requests of strangers, changed workflows, changed plans."""

import json
from pathlib import Path

import pytest

from tests.actions.conftest import EXCLUDED, OWN, PASSES, SECRETS, Build, gpu_machine
from tests.actions.events import HEAD, MERGED, MERGED_LATER, PUSHED, dispatched, pull_request
from tests.actions.strangers import BESIDE, HOSTILE, Tree, nothing_ran, told, world

pytestmark = [pytest.mark.env, pytest.mark.timeout(900)]

GATE = "matrix / gate"
EVIL = ("evil/actions", "f" * 40)
STEAL = f"""\
  steal:
    runs-on: [self-hosted, gpu-pr, sm90]
    permissions: {{}}
    env:
      GITHUB_WORKFLOW_REF: {OWN}/.github/workflows/matrix-gpu.yml@refs/heads/main
      GITHUB_EVENT_NAME: workflow_dispatch
      GITHUB_REF: refs/heads/main
      GITHUB_REPOSITORY: {OWN}
      BASH_FUNC_exec%%: '() {{ exit 0; }}'
    steps:
      - run: touch PWNED; env
      - if: always()
        run: touch PWNED
      - if: failure()
        run: touch PWNED
      - if: ${{{{ !cancelled() }}}}
        uses: {EVIL[0]}/script@{EVIL[1]}
      - if: always()
        uses: {EVIL[0]}/composite@{EVIL[1]}
"""


def actions_of_a_stranger(place: Path) -> Path:
    """One with scripts before, in and after a job, and one that uses it and runs more."""
    script = place / "script"
    script.mkdir(parents=True)
    (script / "action.yml").write_text("runs:\n  using: node20\n  pre: x.js\n  main: x.js\n  post: x.js\n")
    (script / "x.js").write_text("require('fs').writeFileSync('PWNED', '')\n")
    composite = place / "composite"
    composite.mkdir()
    (composite / "action.yml").write_text(
        "runs:\n  using: composite\n  steps:\n"
        f"    - uses: {EVIL[0]}/script@{EVIL[1]}\n"
        "    - if: always()\n      shell: bash\n      run: touch PWNED\n"
    )
    return place


def test_a_hostile_pull_request_reaches_no_machine_and_runs_nothing_of_its_words(
    tmp_path: Path, tree: Tree, build: Build
) -> None:
    """Its workflow asks for a GPU machine with every kind of step that GitHub runs after a hook that failed, and its
    names and texts are full of shell, expressions and commands."""
    github = world(tree, build)
    github.trees[EVIL] = actions_of_a_stranger(tmp_path / "evil")
    theirs = tree("theirs", EXCLUDED)
    workflow = theirs / ".github/workflows/matrix-pr.yml"
    workflow.write_text(workflow.read_text() + STEAL)
    text = (theirs / "matrix.yaml").read_text()
    because = "GPU backends are judged on GPU archs; vLLM's CPU platform serves cpu_attn"
    assert text.count(because) == 1
    (theirs / "matrix.yaml").write_text(text.replace(f"because: {because}", f"because: {json.dumps(HOSTILE)}"))
    (theirs / "$(touch PWNED); `touch PWNED`.py").write_text("")
    github.trees[OWN, MERGED] = theirs
    event = pull_request()
    event.payload["pull_request"]["title"] = HOSTILE
    event.payload["pull_request"]["head"]["ref"] = "x$(touch${IFS}PWNED)"
    run = github.trigger("matrix-pr.yml", event)
    nothing_ran(github, run)
    assert "the event 'pull_request' starts no job here" in run.job("steal").log
    assert "Runner.Worker" in run.job("steal").log
    assert told(run)[GATE] == "success", run.job(GATE).log
    for job in run.all_jobs:
        assert job.annotations == [], "words of the pull request became a command to GitHub"
        assert all(secret not in text for secret in SECRETS.values() for text in job.seen_by_steps)
    summary = run.job(GATE).summary
    assert "touch PWNED" in summary, "the reason is shown"
    assert all(line.count("`") >= 2 for line in summary.splitlines() if "PWNED" in line), "and only as code"


def test_without_the_hook_those_steps_do_run(tmp_path: Path, tree: Tree, build: Build) -> None:
    """Or the story above would show nothing: the same steps, on a machine whose hook only fails."""
    github = world(tree, build)
    github.trees[EVIL] = actions_of_a_stranger(tmp_path / "evil")
    theirs = tree("theirs", EXCLUDED)
    (theirs / ".github/workflows/matrix-pr.yml").write_text("on: pull_request\njobs:\n" + STEAL)
    github.trees[OWN, MERGED] = theirs
    refuses = tmp_path / "refuses.sh"
    refuses.write_text("exit 1\n")
    github.machines[1].hook = refuses
    run = github.trigger("matrix-pr.yml", pull_request())
    assert len(run.job("steal").seen_by_steps) >= 3
    assert list(github.folder.rglob("PWNED"))


def test_a_pull_request_that_calls_itself_matrix_gpu_is_refused_too(tree: Tree, build: Build) -> None:
    """Its file has the name that the machine takes, and a maintainer pushed to it after the command."""
    github = world(tree, build)
    theirs = tree("theirs", EXCLUDED)
    (theirs / ".github/workflows/matrix-gpu.yml").write_text(
        "on: {pull_request: {types: [labeled, synchronize]}}\njobs:\n"
        "  steal:\n    runs-on: [self-hosted, gpu-pr, sm90]\n    permissions: {}\n"
        "    steps: [{if: always(), run: touch PWNED}]\n"
    )
    github.trees[OWN, MERGED_LATER] = theirs
    run = github.trigger("matrix-gpu.yml", pull_request("synchronize", head=PUSHED, sender="maintainer"))
    nothing_ran(github, run)


def test_a_machine_for_releases_takes_no_commit_of_a_pull_request(tree: Tree, build: Build) -> None:
    """Somebody changed the label of the job on the default branch: the machine's own hook knows its workflows."""
    main = tree("main", PASSES)
    workflow = main / ".github/workflows/matrix-gpu.yml"
    text = workflow.read_text()
    workflow.write_text(text.replace("gpu-pr", "gpu-release").replace("vars.GPU_PR_MACHINES", "vars.GPU_MACHINES"))
    github = build(main, gpu_machine("sm90"))
    github.trees[OWN, HEAD] = main
    github.heads[7] = HEAD
    github.dies = BESIDE
    run = github.trigger("matrix-gpu.yml", dispatched("main", {"pull": "7", "sha": HEAD}))
    nothing_ran(github, run, "device / device (sm90)")
    assert "the workflow 'matrix-gpu.yml@refs/heads/main' is not taken" in run.job("device / device (sm90)").log


def test_a_pull_request_whose_own_code_plans_chooses_no_machine(tree: Tree, build: Build) -> None:
    """What it says of its device job is an arch; here it says the label of the other machines."""
    theirs = tree("theirs", PASSES)
    planning = theirs / "runner/ci/jobs.py"
    text = planning.read_text()
    assert text.count('"arch": job.runs_on[-1]') == 1
    planning.write_text(text.replace('"arch": job.runs_on[-1]', '"arch": "gpu-release", "runs_on": ["gpu-release"]'))
    github = build(tree("main", PASSES), gpu_machine("sm90", label="gpu-pr"), gpu_machine("sm100"))
    github.trees[OWN, HEAD], github.heads[7] = theirs, HEAD
    github.dies = BESIDE
    run = github.trigger("matrix-gpu.yml", dispatched("main", {"pull": "7", "sha": HEAD}))
    assert run.job("device / device (sm90)").machine is None, "no machine has both labels"
    assert not any(job.machine and not job.machine.hosted for job in run.all_jobs)
