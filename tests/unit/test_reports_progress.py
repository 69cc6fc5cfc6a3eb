"""What a run shows while it goes on."""

import io
import threading
import time

import pytest
from rich.console import Console

from runner.model import State, Verdict
from runner.reports import console as consoles
from runner.reports.progress import Bar, Lines, Silent, make


def plain_console():
    return Console(file=io.StringIO(), width=80, highlight=False, markup=False, emoji=False)


def terminal_console():
    return Console(file=io.StringIO(), width=80, force_terminal=True, markup=False, emoji=False)


def lines_of(console):
    return console.file.getvalue().splitlines()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in ("CI", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_the_display_suits_the_place(monkeypatch):
    assert isinstance(make(terminal_console()), Bar)
    assert isinstance(make(plain_console()), Lines)
    assert isinstance(make(terminal_console(), verbosity=-1), Silent)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(make(terminal_console()), Lines)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("CI", "true")
    assert isinstance(make(terminal_console()), Lines)


def test_plain_lines_come_at_each_tenth_and_count_the_bad():
    console = plain_console()
    display = Lines(console)
    display.start(100)
    for number in range(100):
        display.cell_finished(State.CRASH if number == 4 else Verdict.XFAIL, f"cell-{number}")
    display.stop()
    lines = lines_of(console)
    assert lines[0] == "100 cells to run"
    assert len(lines) == 11
    assert lines[1].startswith("10/100 cells (10%), ")
    assert lines[-1].startswith("100/100 cells (100%), ")
    assert all("1 bad" in line for line in lines[1:])


def test_more_cells_than_lines_and_fewer_cells_than_lines():
    console = plain_console()
    display = Lines(console)
    display.start(3)
    for number in range(3):
        display.cell_finished(State.PASS, str(number))
    display.stop()
    assert len(lines_of(console)) == 4


def test_a_heartbeat_breaks_a_long_silence_and_only_that():
    console = plain_console()
    display = Lines(console, heartbeat_s=0.1)
    display.start(1000)
    until = time.monotonic() + 10
    while len(lines_of(console)) < 3 and time.monotonic() < until:
        time.sleep(0.02)
    display.stop()
    beats = lines_of(console)[1:]
    assert len(beats) >= 2
    assert all(line.startswith("0/1,000 cells (0%)") for line in beats)
    said = len(lines_of(console))
    time.sleep(0.3)
    assert len(lines_of(console)) == said
    assert "heartbeat" not in {thread.name for thread in threading.enumerate()}


def test_verbose_names_each_cell():
    console = plain_console()
    display = make(console, verbosity=1)
    display.start(2)
    display.cell_finished(State.PASS, "a-b")
    display.cell_finished(State.OVERFLOW, "a-c")
    display.stop()
    assert "pass a-b" in lines_of(console)
    assert "overflow a-c" in lines_of(console)


def test_silent_says_nothing_whatever_happens():
    console = plain_console()
    display = make(console, verbosity=-1)
    display.start(2)
    display.note("x")
    display.cell_finished(State.CRASH, "a")
    display.stop()
    assert console.file.getvalue() == ""


def test_a_note_cannot_steer_the_terminal():
    console = plain_console()
    display = make(console)
    display.note("worker said \x1b[2J [bold]x[/bold]")
    display.stop()
    assert lines_of(console) == ["worker said \\x1b[2J [bold]x[/bold]"]


def test_the_bar_counts_and_lets_notes_pass_above_it():
    console = terminal_console()
    display = make(console, verbosity=1)
    display.start(2)
    display.note("building [the environment]")
    display.cell_finished(State.CRASH, "a-b")
    display.cell_finished(State.PASS, "a-c")
    display.stop()
    text = console.file.getvalue()
    assert "building [the environment]" in text
    assert "crash a-b" in text
    assert "2/2" in text
    assert "1 bad" in text


def test_a_display_that_never_started_can_be_stopped():
    for display in (Bar(terminal_console()), Lines(plain_console()), Silent()):
        display.stop()


def test_the_console_obeys_no_color(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert consoles.make(io.StringIO()).no_color
