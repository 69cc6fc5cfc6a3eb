"""The command line: what goes to which stream, exit codes, and what reaches the run."""

import json
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import runner
from runner import cli, machine
from runner.devices import Device
from runner.environments import daemon
from runner.errors import MachineError, NothingSelected, RunnerError, StoppedEarly, UsageError
from runner.options import DEFAULT_TIMEOUT_S, EngineName, Machine, RunOptions
from runner.select import Shard

pytestmark = pytest.mark.usefixtures("small")


class FakeSession(types.ModuleType):
    """Stands where runner.session is; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__("runner.session")
        self.asked: list[RunOptions] = []
        self.answer: int | BaseException = 0

    def run(self, options: RunOptions) -> int:
        self.asked.append(options)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    fake = FakeSession()
    # Whether a daemon answers on the machine of the tests is not what they are about.
    monkeypatch.setattr(daemon, "examine", lambda: daemon.Daemon(version="27.0"))
    monkeypatch.setitem(sys.modules, "runner.session", fake)
    monkeypatch.setattr(runner, "session", fake, raising=False)
    return fake


def test_runner_without_a_command_runs_with_these_defaults(session: FakeSession) -> None:
    assert cli.main([]) == 0
    assert session.asked == [RunOptions(matrix=Path("matrix.yaml"))]
    assert session.asked[0].timeout_s == DEFAULT_TIMEOUT_S


def test_every_option_of_a_run_arrives(session: FakeSession) -> None:
    line = "--matrix m.yaml --filter sm100 -f k3 --tier quick --shard 2/4 --engine local --jobs 3 --timeout 9.5"
    line += " --candidate fix=a.patch --candidate mine=b@0.32.0"
    assert cli.main([*line.split(), "--out", "here", "--json", "--no-known", "-vv", "-q"]) == 0
    assert session.asked == [
        RunOptions(
            matrix=Path("m.yaml"),
            filters=("sm100", "k3"),
            candidates=("fix=a.patch", "mine=b@0.32.0"),
            tier="quick",
            shard=Shard(2, 4),
            engine=EngineName.LOCAL,
            jobs=3,
            timeout_s=9.5,
            out=Path("here"),
            json=True,
            known=False,
            verbosity=1,
        )
    ]


@pytest.mark.parametrize("code", [0, 1, 3, 4])
def test_the_exit_code_is_that_of_the_run(code: int, session: FakeSession) -> None:
    session.answer = code
    assert cli.main([]) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("say it so"), 2),
        (MachineError("no disk"), 3),
        (StoppedEarly("later"), 4),
        (NothingSelected("none"), 5),
    ],
)
def test_a_fatal_error_is_one_message_on_standard_error_and_an_exit_code(
    error: RunnerError, code: int, session: FakeSession, capsys: pytest.CaptureFixture[str]
) -> None:
    session.answer = error
    assert cli.main([]) == code
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"{error}\n")


def test_an_interrupt_is_130_and_a_mistake_of_the_runner_is_3_and_not_the_products(
    session: FakeSession, capsys: pytest.CaptureFixture[str]
) -> None:
    session.answer = KeyboardInterrupt()
    assert cli.main([]) == 130
    session.answer = ZeroDivisionError()
    assert cli.main([]) == 3
    assert "please report it" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "--nope",
        "nope",
        "--engine podman",
        "--jobs 0",
        "--timeout nan",
        "--timeout inf",
        "--timeout 0",
        "--shard 5/4",
        "list --shard x",
        "list --timeout 3",
        "report",
        "list --filter arc=1",
        "list --tier nope",
        "list --matrix nowhere.yaml",
    ],
)
def test_a_command_line_that_cannot_be_obeyed_is_exit_2_without_a_traceback(
    line: str, session: FakeSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(line.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err
    assert "Traceback" not in shown.err
    assert session.asked == []


def test_an_option_before_a_command_is_refused_instead_of_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--filter", "sm100", "list"]) == 2
    assert "--filter is for the command: write it after it, as `runner list ...`" in capsys.readouterr().err


def test_list_prints_one_id_a_line_and_remarks_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--filter", "flashinfer,k3,c64,hybrid_on"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "0.32.0-flashinfer-sm90-hybrid_on-k3-c64-solo",
        "0.32.0-flashinfer-sm100-hybrid_on-k3-c64-solo",
        "0.32.0-flashinfer-cpu-hybrid_on-k3-c64-solo",
    ]
    assert shown.err == "cells: 3, of them 2 to run and 1 unsupported\n"


def test_list_json_gives_cells_that_the_cases_can_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--json", "--filter", "k3,c64,hybrid_on,flashinfer"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [set(row) for row in rows] == [{"id", "axes", "labels", "load", "unsupported", "evidence"}] * 3
    assert [bool(row["unsupported"]) for row in rows] == [False, False, True]


def test_a_filter_that_matches_nothing_is_exit_5_with_the_nearest_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--filter", "sm101"]) == 5
    assert "did you mean 'sm100' or 'sm90'?" in capsys.readouterr().err


def test_plan_shows_groups_reasons_and_the_sum(
    session: FakeSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = Device(index=0, uuid="GPU-1", name="B200", arch="sm100", memory_mib=183_000, driver="580.1")
    on = Machine(engine=EngineName.DOCKER, why="it answers", devices=(gpu,))
    monkeypatch.setattr(machine, "choose", lambda *_: on)
    assert cli.main(["plan"]) == 0
    shown = capsys.readouterr()
    words = [line.split() for line in shown.out.splitlines()]
    assert ["vllm", "0.32.0", "emulated", "docker", "24"] in words
    assert ["vllm", "0.32.0", "device", "docker", "24"] in words
    assert ["vllm", "0.32.0", "cpu", "docker", "12"] in words
    assert ["no", "GPU", "12"] in words
    assert "cells: 72, of them 60 to run and 12 unsupported" in shown.out
    assert shown.err == "engine docker: it answers\n"
    assert "\x1b" not in shown.out


def test_plan_json_holds_the_same_and_every_cell(session: FakeSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "--json", "--filter", "k3"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["engine"] == "docker"
    assert data["groups"] == [
        {"environment": "0.32.0", "evidence": "emulated", "cells": 16},
        {"environment": "0.32.0", "evidence": "cpu", "cells": 4},
    ]
    assert data["unsupported"] == {"no GPU": 4}
    assert len(data["cells"]) == 24


def test_markup_in_a_reason_is_shown_as_it_was_written(
    in_small: Callable[..., Path], session: FakeSession, capsys: pytest.CaptureFixture[str]
) -> None:
    in_small("because: no GPU", "because: no [red]GPU[/red] [/nope]")
    assert cli.main(["plan"]) == 0
    assert "no [red]GPU[/red] [/nope]" in capsys.readouterr().out


def test_schema_prints_what_is_in_the_docs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema"]) == 0
    assert capsys.readouterr().out == (project / "docs" / "matrix.schema.json").read_text()


def test_help_explains_filters_and_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    lines = [line.strip() for line in shown.splitlines()]
    for start in ("0  everything", "1  product", "2  usage", "3  only machine", "4  stopped", "5  nothing", "130  int"):
        assert any(line.startswith(start) for line in lines), start
    for command in ("plan", "list", "schema", "report", "repro", "doctor", "env"):
        assert command in shown
    assert "\x1b" not in shown


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"attnmatrix {runner.__version__}\n"


def test_a_directory_without_a_matrix_falls_back_to_the_one_that_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert cli.main(["list", "--filter", "sm120,flashinfer,k7,c64,solo,hybrid_on"]) == 0
    assert capsys.readouterr().out == "0.32.0-flashinfer-sm120-hybrid_on-k7-c64-solo\n"


def test_a_reader_that_goes_away_is_no_trouble(project: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "runner", "list", "--json", "--matrix", project / "matrix.yaml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 0
    assert said.startswith("cells: ")
    assert len(said.splitlines()) == 1
