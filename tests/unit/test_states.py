"""The page of states is what the code says, and each sentence of it has a test."""

import subprocess
import sys
from pathlib import Path

import pytest

from runner.model import Fault, State, Verdict
from runner.outcome import VERDICT_ORDER, exit_code
from runner.reports import states
from runner.states import MEANINGS

PROJECT = Path(__file__).parents[2]


def test_the_page_and_readme_are_what_the_code_says() -> None:
    """To write both anew: `python -m runner.reports.states`."""
    assert (PROJECT / states.PAGE).read_text() == states.page()
    readme = (PROJECT / "README.md").read_text()
    assert readme.count(states.BEGIN) == readme.count(states.END) == 1
    assert readme == states.with_table(readme)


def test_both_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(f"before\n{states.BEGIN}\nold\n{states.END}\nafter\n")
    states.write(tmp_path)
    assert (tmp_path / states.PAGE).read_text() == states.page()
    assert (tmp_path / "README.md").read_text() == f"before\n{states.BEGIN}\n{states.table()}{states.END}\nafter\n"


def test_each_verdict_has_its_section_and_its_row() -> None:
    assert set(MEANINGS) == set(Verdict) == set(VERDICT_ORDER)
    assert {state.value for state in State} <= {verdict.value for verdict in MEANINGS}
    for verdict, meaning in MEANINGS.items():
        assert meaning.holds, verdict
        assert meaning.never, verdict
        assert f"\n## `{verdict.value}`\n" in states.page()
        row = next(line for line in states.table().splitlines() if line.startswith(f"| `{verdict.value}` |"))
        *_, whose, code, _ = (cell.strip() for cell in row.split("|"))
        assert whose == ("" if verdict.fault is Fault.NONE else verdict.fault.value)
        assert int(code) == exit_code([verdict])
        assert (int(code) == 0) == (not whose), "what exits with 0 is nobody's trouble"


@pytest.mark.timeout(300)
def test_each_sentence_has_a_test_that_is_there() -> None:
    named = set(states.tests())
    files = sorted({test.split("::")[0] for test in named})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *files]
    listed = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stdout[-2000:] + listed.stderr[-2000:]
    there = {line.split("[")[0] for line in listed.stdout.splitlines()}
    gone = sorted(named - there)
    assert not gone
