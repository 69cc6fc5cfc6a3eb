"""No word of a cell, a patch or a machine is a command to GitHub, whatever command of ours prints it."""

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import output
from runner.cli import main
from runner.muted import Muted, harmless_json

HOSTILE = st.lists(
    st.sampled_from(
        [":", "::", "#", "##[", "[", "]", " ", "\t", "\n", "\r", "error", "x", "set-output name=a", "\u00a0"]
    ),
    max_size=12,
).map("".join)


def commands(text: str) -> list[str]:
    """What GitHub would take for a command, written down anew from ActionCommand.cs of actions/runner 2.336.0."""
    lines = re.split(r"\r\n|\r|\n", text)
    return [line for line in lines if re.match(r"::[^:]*(:[^:]+)*::", line.lstrip()) or re.search(r"##\[.*?\]", line)]


def through(pieces: list[str], *, flush: bool = False) -> str:
    stream = io.StringIO()
    muted = Muted(stream)
    for piece in pieces:
        muted.write(piece)
        if flush:
            muted.flush()
    muted.finish()
    return stream.getvalue()


@given(st.lists(HOSTILE, max_size=6), st.booleans())
def test_no_text_in_whatever_pieces_is_a_command(pieces: list[str], flush: bool) -> None:
    said = through(pieces, flush=flush)
    assert commands(said) == []
    assert "##[" not in said
    assert re.sub(r"[ \u00a0]", "", said) == re.sub(r"[ \u00a0]", "", "".join(pieces)), "only blanks come in between"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("::error::x", ": :error::x"),
        ("  ::error::x\n", "  : :error::x\n"),
        ("a ::error::x", "a ::error::x"),
        ("a\r::error::x", "a\r: :error::x"),
        ("a ##[error]x", "a # #[error]x"),
        ("tests/unit/test_a.py::test_b", "tests/unit/test_a.py::test_b"),
    ],
)
def test_what_it_writes(text: str, said: str) -> None:
    assert through([text]) == said


@given(HOSTILE)
def test_json_means_the_same_and_has_no_command(text: str) -> None:
    said = harmless_json(json.dumps({"a": [text]}, indent=1))
    assert json.loads(said) == {"a": [text]}
    assert through([said]) == said
    assert commands(said) == []


def test_what_is_meant_to_be_a_command_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", Muted(stream))
    output.emit("::error::not this")
    output.command("::error title=t::this")
    assert stream.getvalue().splitlines() == [": :error::not this", "::error title=t::this"]


def test_an_error_message_in_a_step_is_no_command(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert main(["report", "x\n::error title=a::b\n##[error]c"]) == 2
    told = capsys.readouterr()
    assert commands(told.out + told.err) == []
    assert "b" in told.err
