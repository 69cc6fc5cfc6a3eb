"""Logs go where the cell's id says and nowhere else, and stay small."""

from pathlib import Path

import pytest

from runner.errors import MachineError
from runner.logs import LIMIT, LogStore

CELL = "0.32.0-flashinfer-sm100-hybrid_on-k3-c8192-solo"


def test_a_log_is_kept_under_its_cell_and_attempt(tmp_path: Path) -> None:
    log = LogStore(tmp_path).open(CELL, 2)
    log.write("one\n")
    log.write("two\n")
    log.close()
    assert log.place == f"cells/{CELL}/attempt-2.log"
    assert (tmp_path / log.place).read_text() == "one\ntwo\n"


def test_a_silent_cell_leaves_no_file(tmp_path: Path) -> None:
    log = LogStore(tmp_path).open(CELL, 1)
    log.write("")
    log.close()
    assert log.place == ""
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_sends_without_end_does_not_fill_the_disk(tmp_path: Path) -> None:
    log = LogStore(tmp_path).open(CELL, 1)
    for _ in range(30):
        log.write("x" * 100_000)
    log.close()
    assert (tmp_path / log.place).stat().st_size == LIMIT


@pytest.mark.parametrize("cell", ["", ".", "..", "../x", "a/b", "/etc", "a\x00", "-x", "A"])
def test_what_is_no_cell_id_is_no_place(tmp_path: Path, cell: str) -> None:
    with pytest.raises(ValueError, match="is no cell id"):
        LogStore(tmp_path).open(cell, 1)


def test_a_folder_that_cannot_be_written_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "cells").write_text("in the way")
    with pytest.raises(MachineError, match=r"attempt-1\.log: cannot write the log"):
        LogStore(tmp_path).open(CELL, 1).write("x")
