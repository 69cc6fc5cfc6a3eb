"""A short version of what `python -m tests.faults.kills` does at length."""

from pathlib import Path

import pytest

from tests.faults.kills import disturb


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_table(tmp_path: Path) -> None:
    kills, wrong = disturb(tmp_path, kills=8, seed=7)
    assert not wrong
    assert kills["runner"] >= 2
    assert kills["worker"] >= 1


@pytest.mark.docker
def test_a_run_in_containers_that_are_killed_too(tmp_path: Path, image: str) -> None:
    kills, wrong = disturb(tmp_path, kills=6, seed=5, image=image)
    assert not wrong
    assert kills["container"] >= 1
    assert kills["runner"] >= 1
