"""Engines by name: each says what it finds and how it is opened, and one that says nothing is no other one."""

import pytest

from runner import machine
from runner.environments import daemon
from runner.errors import MachineError
from runner.options import EngineName


def test_each_engine_but_auto_is_in_the_table() -> None:
    assert set(machine.KINDS) == set(EngineName) - {EngineName.AUTO}


@pytest.mark.parametrize("name", sorted(machine.KINDS))
def test_an_engine_that_is_not_in_the_table_is_no_other_one(name: EngineName, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = {other: kind for other, kind in machine.KINDS.items() if other is not name}
    monkeypatch.setattr(machine, "KINDS", rest)
    with pytest.raises(KeyError):
        machine.choose(name)


def test_without_a_daemon_auto_is_local_and_docker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = daemon.Daemon(trouble="no daemon", advice="start one")
    monkeypatch.setattr(daemon, "examine", lambda: gone)
    assert machine.choose(EngineName.AUTO).engine is EngineName.LOCAL
    with pytest.raises(MachineError, match="--engine docker: no daemon: start one"):
        machine.choose(EngineName.DOCKER)
