"""Tables on standard output: whatever the width, no id and no path is broken."""

import pytest
from rich.console import Group
from rich.table import Table

from runner import output

PATHS = [f".runner/envs/vllm-0.32.0-{digit * 40}" for digit in "ab"]


def table() -> Table:
    made = Table("what", "where", "what to do about it", box=None)
    made.add_row("two words", PATHS[0], "read this, which is long enough to be wrapped")
    made.add_row("x", f"{PATHS[1]} and some more words", "")
    return made


@pytest.mark.parametrize("columns", ["20", "80", "160"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_no_word_of_a_table_is_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str, wrapped: bool
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    output.emit_rich(Group(table()) if wrapped else table())
    said = capsys.readouterr().out
    assert all(path in said for path in PATHS)
    assert {"enough", "wrapped", "words"} <= set(said.split())


def test_a_table_that_fits_is_no_wider_than_its_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    output.emit_rich(table())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3, "nothing is wrapped"
    assert max(map(len, map(str.rstrip, lines))) < 250
