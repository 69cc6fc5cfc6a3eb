"""What is said where there is no cluster, or no Ray; nothing here starts one."""

import socket
import subprocess
import sys
import time

import pytest

from runner import cli
from runner.engines import ray_cluster
from runner.errors import MachineError
from runner.machine import choose
from runner.options import EngineName


def trouble(address: str) -> str:
    with pytest.raises(MachineError) as raised:
        choose(EngineName.RAY, address)
    return str(raised.value)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nothing_answers_is_told_at_once_with_what_to_do(scheme: str) -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else answers there either
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        started = time.monotonic()
        said = trouble(f"{scheme}127.0.0.1:{port}")
    assert f"--engine ray --address {scheme}127.0.0.1:{port}: nothing answers at 127.0.0.1:{port}" in said
    assert "ray start --head" in said
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("address", ["nonsense", "host:port", ":6379", "ray://"])
def test_what_is_no_address_is_said_to_be_none(address: str) -> None:
    assert "this is no address of a cluster: write auto, HOST:PORT or ray://HOST:PORT" in trouble(address)


def test_without_ray_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert ray_cluster.INSTALL in trouble("auto")


def test_the_command_line_ends_with_the_machines_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--engine", "ray", "--address", "nonsense", "--filter", "sm90"]) == 3
    assert "no address of a cluster" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["env", "build"], ["repro", "0.32.0-flashinfer-sm90-hybrid_on-k1-c64-solo"]])
def test_commands_that_are_for_one_machine_refuse_the_engine(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*words, "--engine", "ray"]) == 2
    assert "--engine ray: " in capsys.readouterr().err


def test_ray_is_not_imported_unless_the_engine_is_asked_for() -> None:
    script = "import sys, runner.cli, runner.session; from runner import cli; cli.main(['list', '-h']); "
    script += "assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
