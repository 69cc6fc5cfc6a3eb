"""A case that attacks, in a real container: it gets at nothing, and the cell after it does not notice."""

import re
from pathlib import Path

import pytest

from runner.engines.docker import WALLS, DockerEngine
from runner.messages import MESSAGE_LIMIT
from runner.model import CellOutcome, State
from tests.contract.bench import Bench, passed

pytestmark = pytest.mark.docker


@pytest.fixture
def bench(docker_engine: DockerEngine, tmp_path: Path) -> Bench:
    return Bench(docker_engine, tmp_path)


def attack(bench: Bench, deed: str) -> tuple[CellOutcome, str]:
    """What became of the attack, and what it said; the next cell of the same worker passes, and finds no trace."""
    outcome, after = bench.do(deed, "look_for_a_mark", timeout_s=60.0)
    assert passed(after), f"the cell after it: {after}"
    return outcome, bench.log(outcome)


@pytest.mark.parametrize(
    ("deed", "tries"),
    [
        ("reach_the_network", 7),
        ("reach_the_docker_daemon", 3),
        ("reach_the_hosts_files", 14),
        ("gain_privileges", 4),
        ("write_outside", 6),
        ("forge_results", 5),
    ],
)
def test_an_attack_gets_at_nothing(bench: Bench, deed: str, tries: int) -> None:
    outcome, said = attack(bench, deed)
    assert passed(outcome)
    assert not re.findall("^reached: .*", said, re.MULTILINE)
    assert len(re.findall("^refused: ", said, re.MULTILINE)) >= tries, said


def test_no_process_but_its_own_is_seen(bench: Bench) -> None:
    _, said = attack(bench, "see_other_processes")
    (found,) = re.findall(r"processes: (\d+)", said)
    assert int(found) <= 3


def test_a_fork_bomb_ends_at_the_limit_and_with_its_cell(bench: Bench) -> None:
    _, said = attack(bench, "fork_bomb")
    (started,) = re.findall(r"processes started: (\d+)", said)
    assert 0 < int(started) <= WALLS.pids


def test_a_full_disk_is_the_cells_own(bench: Bench) -> None:
    filled, after = bench.do("fill_the_disk", "write_30_mb", timeout_s=60.0)
    assert passed(after), f"the disk is still full: {after}"
    said = bench.log(filled)
    (written,) = re.findall(r"bytes written: (\d+)", said)
    assert 1 << 20 <= int(written) <= 64 << 20


def test_words_that_attack_are_made_harmless_and_short(bench: Bench) -> None:
    outcome, said = attack(bench, "break_the_words")
    (case,) = outcome.cases
    assert case.state is State.FAIL
    assert len(case.message) <= MESSAGE_LIMIT
    for text in (case.message, said):
        assert not set("\x1b\x07\x00\u202e") & set(text)
