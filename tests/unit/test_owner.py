"""Leftovers are told from what is in use; in doubt they are in use."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from runner.engines.owner import Owner


def test_an_owner_survives_being_written_down() -> None:
    assert Owner.parse(str(Owner.current())) == Owner.current()


@pytest.mark.parametrize("text", ["", "x", "a/b/c/d/e", "a/b/c/1/2/3", "a/b/c/-1/2"])
def test_text_of_others_is_no_owner(text: str) -> None:
    assert Owner.parse(text) is None


def test_a_living_process_is_not_dead_and_an_ended_one_is() -> None:
    code = "from runner.engines.owner import Owner; print(Owner.current(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        owner = Owner.parse(process.stdout.readline().strip())
        assert owner
        assert not owner.is_dead()
        process.kill()
        process.wait()
        assert owner.is_dead()


def test_another_process_with_the_same_pid_does_not_keep_an_owner_alive() -> None:
    assert replace(Owner.current(), started="1").is_dead()


def test_what_was_started_before_this_boot_is_dead() -> None:
    assert replace(Owner.current(), boot="another").is_dead()


@pytest.mark.parametrize("where", [{"host": "elsewhere"}, {"pid_namespace": "pid:[1]"}])
def test_nothing_is_said_about_processes_that_cannot_be_seen_from_here(where: dict[str, str]) -> None:
    assert not replace(Owner.current(), pid=os.getpid() + 1, started="0", **where).is_dead()
