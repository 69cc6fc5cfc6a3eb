"""`runner ci` and `runner plan --github` as a workflow and a person meet them."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from runner import results
from runner.ci import asking
from runner.cli import main
from runner.model import State
from tests.unit.synthetic import cell
from tests.unit.synthetic import results as all_results


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The files of a step of a workflow."""
    files = {name: tmp_path / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for name, path in files.items():
        path.touch()
        monkeypatch.setenv(name, str(path))
    for name in ("RUNNERS_TOKEN", "JOB", "TIER", "FILTER", "VLLM", "NEEDS", "UNTAKEN", "TITLE", "MACHINES"):
        monkeypatch.delenv(name, raising=False)
    return files


def test_the_plan_as_jobs(in_small: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    in_small()
    assert main(["plan", "--github", "--tier", "quick", "--machines", "sm90"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [job["arch"] for job in printed["device"]["include"]] == ["sm90"]
    assert main(["plan", "--github", "--machines", "b200"]) == 2


def test_a_plan_tells_the_workflow(
    in_small: Callable[..., Path], step: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    in_small()
    # as a workflow gives them: what is not asked for is empty
    for name, value in {
        "TIER": "quick",
        "FILTER": "",
        "VLLM": "",
        "VLLM_COMMIT": "",
        "MACHINES": "sm90, sm100",
    }.items():
        monkeypatch.setenv(name, value)
    assert main(["ci", "plan"]) == 0
    told = dict(line.split("=", 1) for line in step["GITHUB_OUTPUT"].read_text().splitlines())
    assert set(told) == {"hosted", "device", "device_names"}
    assert told["device_names"] == "sm90,sm100"
    assert "sm90: 16 cells, 16 to run; self-hosted gpu-release sm90" in capsys.readouterr().out
    assert Path("plan/jobs.json").exists()


def test_an_unknown_tier_is_said_with_the_nearest_name(in_small: Callable[..., Path], step, capsys) -> None:
    in_small()
    assert main(["ci", "plan", "--tier", "quik"]) == 2
    assert "did you mean 'quick'" in capsys.readouterr().err
    assert step["GITHUB_OUTPUT"].read_text() == ""


def test_what_cells_print_is_no_command(
    in_small: Callable[..., Path], step, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    in_small()

    def a_run(*_: object) -> int:
        print("::error::pwned")
        return 1

    monkeypatch.setattr(asking, "run", a_run)
    assert main(["ci", "run", "--filter", "sm90"]) == 1
    begin, inside, end = capsys.readouterr().out.splitlines()
    token = re.fullmatch(r"::stop-commands::([0-9a-f]{32})", begin)[1]
    assert (inside, end) == ("::error::pwned", f"::{token}::")


def test_commands_are_taken_again_after_a_run_that_broke(
    in_small, step, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    in_small()

    def breaks(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(asking, "run", breaks)
    assert main(["ci", "run"]) == 130
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_one_run_alone_is_summed_up(tmp_path: Path, step, capsys) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "results.json").write_text(results.to_json(list(all_results())))
    assert main(["ci", "summary", str(run), "--title", "mine"]) == 0
    assert step["GITHUB_STEP_SUMMARY"].read_text().startswith("# Attention matrix: `mine`\n\n**exit 1:")
    assert main(["ci", "annotations", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 1 <= len(lines) <= 10
    assert all(line.startswith("::error ") for line in lines)


def test_a_summary_goes_to_standard_output_outside_of_a_workflow(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    (tmp_path / "results.json").write_text(results.to_json([cell(State.PASS)]))
    assert main(["ci", "summary", str(tmp_path)]) == 0
    assert "**exit 0: everything as expected**" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["summary", "annotations", "gate", "gather"])
def test_what_is_not_there_is_said_with_what_to_do(tmp_path: Path, step, monkeypatch, capsys, command: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["ci", command]) == 2
    assert re.search(r"`runner ci (gather|plan)|name a run directory", capsys.readouterr().err)


def test_the_same_sources_have_the_same_key(in_small: Callable[..., Path], step, monkeypatch, capsys, project) -> None:
    monkeypatch.chdir(project)
    for _ in range(2):
        assert main(["ci", "cache-key", "--tier", "quick"]) == 0
    one, two = step["GITHUB_OUTPUT"].read_text().splitlines()
    assert one == two
    assert re.fullmatch(r"key=attnmatrix-py3\.\d+\.\d+-[0-9a-f]{16}", one)
    monkeypatch.delenv("GITHUB_OUTPUT")
    for changed in (("sys.version", "3.11.99 (main)"), ("runner.environments.venv.FORMAT", "next")):
        with monkeypatch.context() as patched:
            patched.setattr(*changed)
            assert main(["ci", "cache-key", "--tier", "quick"]) == 0
        assert capsys.readouterr().out.strip() not in one, "another Python, or another way of building, another key"
    assert main(["ci", "cache-key", "--vllm", "0.31.0"]) == 0
    assert capsys.readouterr().out.strip() not in one, "another release, another key"
