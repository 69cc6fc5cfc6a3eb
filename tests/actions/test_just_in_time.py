"""containers/jit-runner.sh: a runner that takes one job on a clean machine. GitHub and its runner are played."""

import os
import subprocess
from pathlib import Path

from tests.actions.conftest import PROJECT
from tests.answering import answering

RUN_SH = """#!/bin/bash
echo "$*" >>"$LOG_OF_TEST"
env >"$(dirname "$0")/../env-of-runner"
[[ -z "$(ls -A _work)" ]] && echo clean >>../states || echo dirty >>../states
touch _work/left evil .env
"""


def test_a_just_in_time_runner_takes_one_job_on_a_clean_machine(tmp_path: Path) -> None:
    """GitHub's answer and its runner are played; twice, as systemd starts it."""
    asked = []

    def made(path: str, authorization: str | None, given: object) -> tuple[int, object]:
        asked.append((path, authorization, given))
        return 201, {"runner": {"id": len(asked)}, "encoded_jit_config": f"config{len(asked)}"}

    fresh = tmp_path / "actions-runner"
    fresh.mkdir()
    (fresh / "run.sh").write_text(RUN_SH.replace('"$LOG_OF_TEST"', str(tmp_path / "calls")))
    (fresh / "run.sh").chmod(0o755)
    (tmp_path / "token").write_text("s3cr3t\n")
    hook = tmp_path / "admit.sh"
    hook.write_text("#!/bin/bash\n")
    hook.chmod(0o755)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/bash\necho "$@" >>{tmp_path}/fit\nexit "${{UNFIT:-0}}"\n')
    python.chmod(0o755)
    script = PROJECT / "containers/jit-runner.sh"
    with answering(lambda *_: (404, {}), made) as address:
        env = {
            "PATH": os.environ["PATH"], "SCOPE": "repos/a/b", "LABEL": "gpu-pr", "ARCH": "sm90", "GROUP": "3",
            "GITHUB_API_URL": address, "TOKEN_FILE": str(tmp_path / "token"), "HOOK": str(hook),
            "RUNNER_SOURCE": str(fresh), "RUNNER_PLACE": str(tmp_path / "actions"), "PYTHON": str(python),
            "RUNNER_USER": subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip(),
        }  # fmt: skip

        def start(**others: str) -> "subprocess.CompletedProcess[str]":
            return subprocess.run([script], env={**env, **others}, capture_output=True, text=True, check=False)

        for _ in range(2):
            done = start()
            assert done.returncode == 0, done.stderr
        assert start(SCOPE="repos/../x y").returncode == 2
        assert "LABEL is neither" in start(LABEL="gpu").stderr
        hook.chmod(0o644)
        assert "without it this machine takes any job" in start().stderr
        hook.chmod(0o755)
        ill = start(UNFIT="3", UNFIT_S="0")
        assert (ill.returncode, "this machine is not well and takes no job" in ill.stderr) == (3, True)
        assert "is not there: install the project" in start(PYTHON=str(tmp_path / "none")).stderr
        assert len(asked) == 2, "GitHub was asked for nothing that could not be used"
        (tmp_path / "actions/_work/unwell").touch()
        rested = start(REST_S="0", ATTNMATRIX_CUDA_PYTHON="/opt/x")
        assert (rested.returncode, "others come first for 0 seconds" in rested.stderr) == (0, True)
        assert "others come first" not in start().stderr, "once"
    assert (tmp_path / "fit").read_text() == "-I -m runner ci fit --arch sm90\n" * 5
    assert [path for path, _, _ in asked] == ["/repos/a/b/actions/runners/generate-jitconfig"] * 4
    assert {authorization for _, authorization, _ in asked} == {"Bearer s3cr3t"}
    bodies = [given for _, _, given in asked]
    assert all(isinstance(body, dict) for body in bodies)
    assert {(body["runner_group_id"], tuple(body["labels"]), body["work_folder"]) for body in bodies} == {
        (3, ("self-hosted", "gpu-pr", "sm90"), "_work")
    }
    assert (tmp_path / "calls").read_text() == "".join(f"--jitconfig config{number}\n" for number in range(1, 5))
    assert (tmp_path / "states").read_text() == "clean\n" * 4, "what the first job left is gone"
    seen = (tmp_path / "env-of-runner").read_text()
    assert f"ACTIONS_RUNNER_HOOK_JOB_STARTED={hook}\n" in seen
    assert "s3cr3t" not in seen


def test_github_that_gives_no_runner_is_said(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "token").write_text("s3cr3t")
    with answering(lambda *_: (404, {}), lambda *_: (403, {"message": "no"})) as address:
        env = {"PATH": os.environ["PATH"], "SCOPE": "orgs/a", "LABEL": "gpu-release", "ARCH": "sm90",
               "GITHUB_API_URL": address, "TOKEN_FILE": str(tmp_path / "token"), "HOOK": str(tmp_path / "run.sh"),
               "RUNNER_SOURCE": str(tmp_path), "PYTHON": "/usr/bin/true"}  # fmt: skip
        script = PROJECT / "containers/jit-runner.sh"
        done = subprocess.run([script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "GitHub gives no runner of orgs/a: the token needs the right" in done.stderr
    assert "s3cr3t" not in done.stderr
