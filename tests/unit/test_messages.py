"""What a worker says is taken only where it is exactly the protocol, and never reaches a terminal raw."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.messages import (
    LINE_LIMIT,
    RESOLVED_LIMIT,
    Broken,
    Case,
    Done,
    Log,
    ProtocolError,
    Ready,
    clean,
    parse,
    render,
)
from runner.model import Batch, Death, How, Overflow, State

CASE: dict[str, Any] = {
    "cell": "a-b",
    "name": "test_x[ragged]",
    "state": "overflow",
    "message": "short",
    "duration_s": 0.25,
    "overflow": [
        {
            "buffer": "indptr",
            "required": 6,
            "allocated": 2,
            "how": "raised",
            "batch": {"query_lens": [320], "seq_lens": [320]},
        }
    ],
    "resolved": {"backend": "flashinfer", "kv_spec": {"kind": "chunked"}, "cudagraph": None},
}


def line(kind: str, body: Any) -> bytes:
    return json.dumps({kind: body}).encode()


def changed(**changes: Any) -> bytes:
    return line("case", {**CASE, **changes})


def test_each_kind_becomes_its_type() -> None:
    assert isinstance(parse(line("ready", {"environment": {"vllm": "0.32.0"}, "import_s": 7})), Ready)
    assert parse(line("broken", {"reason": "no torch"})) == Broken(reason="no torch")
    assert parse(line("log", {"cell": "a", "text": "x"})) == Log(cell="a", text="x")
    done = parse(line("done", {"cell": "a", "duration_s": 1, "death": {"signal": "SIGSEGV"}}))
    assert isinstance(done, Done)
    assert done.how() == Death(signal="SIGSEGV")
    quiet = parse(line("done", {"cell": "a", "duration_s": 1, "death": None}))
    assert isinstance(quiet, Done)
    assert quiet.how() is None


def test_a_case_becomes_a_result() -> None:
    case = parse(line("case", CASE))
    assert isinstance(case, Case)
    result = case.result()
    assert (result.name, result.state, result.duration_s) == ("test_x[ragged]", State.OVERFLOW, 0.25)
    batch = Batch(query_lens=(320,), seq_lens=(320,))
    assert result.overflow == (Overflow(buffer="indptr", required=6, allocated=2, how=How.RAISED, batch=batch),)
    assert case.resolved == CASE["resolved"]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'"done"',
        b"\xff\xfe",
        b'{"shell": {}}',
        b'{"done": {}, "case": {}}',
        b'{"done": {"cell": "a", "duration_s": 1, "death": null}} trailing',
        b'{"log": {"cell": "a", "text": "\\ud800"}}',
        b'{"done": {"cell": "a", "duration_s": NaN, "death": null}}',
        b'{"resolved": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        line("done", {"cell": "a", "duration_s": -1, "death": None}),
        line("done", {"cell": "a", "duration_s": "1", "death": None}),
        line("done", {"cell": "a", "duration_s": 1}),
        line("done", {"cell": "a", "duration_s": 1, "death": {"signal": "; rm -rf /"}}),
        line("done", {"cell": "a", "duration_s": 1, "death": {"exit_code": 256}}),
        line("log", {"cell": "a", "text": "x", "path": "/etc/passwd"}),
        line("log", {"cell": "a" * 1000, "text": "x"}),
        line("ready", {"environment": {"vllm": 32}, "import_s": 1}),
        line("ready", {"environment": {"image_digest": "sha256:forged"}, "import_s": 1}),
        changed(name=""),
        changed(name=7),
        changed(cell=None),
        b'{"case": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b" " * (LINE_LIMIT + 1),
    ],
    ids=range(27),
)
def test_anything_else_is_a_protocol_error_in_a_short_sentence(bad: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse(bad)
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"state": "fine"}, "state"),
        ({"duration_s": -1.0}, "duration_s"),
        ({"duration_s": float("nan")}, "duration_s"),
        ({"name": "x" * 301}, "name"),
        ({"path": "/etc/passwd"}, "path"),
        ({"overflow": [{**CASE["overflow"][0], "required": 2**63}]}, "overflow.0.required"),
        ({"overflow": [{**CASE["overflow"][0], "required": True}]}, "overflow.0.required"),
        ({"overflow": [{**CASE["overflow"][0], "how": "magic"}]}, "overflow.0.how"),
        ({"overflow": CASE["overflow"] * 257}, "overflow"),
        ({"overflow": [{**CASE["overflow"][0], "batch": {"query_lens": [1] * 65_537, "seq_lens": []}}]}, "overflow.0"),
        ({"resolved": {"note": ["x" * 1000] * (RESOLVED_LIMIT // 1000 + 1)}}, "resolved"),
        ({"resolved": []}, "resolved"),
        ({"resolved": {"x": json.loads("[" * 40 + "]" * 40)}}, "resolved"),
        ({"resolved": {"x": json.loads("[" * 300 + "]" * 300)}}, "body"),
    ],
)
def test_a_report_that_is_no_result_has_failed_and_says_why(changes: dict[str, Any], where: str) -> None:
    """Its words are the cell's own: the worker is believed that it was this case of this cell."""
    case = parse(changed(**changes))
    assert isinstance(case, Case)
    assert (case.cell, case.name) == (CASE["cell"], changes.get("name", CASE["name"])[:300])
    assert (case.state, case.overflow, case.resolved) == (State.FAIL, (), {})
    assert case.message.startswith(f"what it reported is no result: {where}")
    assert case.message.isprintable()


@given(st.binary(max_size=300))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse(data)


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("a\r\nb", "a\nb"),
        ("50%\r100%", "50%\\r100%"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b", "\\x1b"),
        ("bell\x07", "bell\\x07"),
        ("\u202eevil", "\\u202eevil"),
        ("\x9b31m", "\\x9b31m"),
        ("naïve ünïcode ✓", "naïve ünïcode ✓"),
    ],
)
def test_text_is_made_safe(raw: str, safe: str) -> None:
    assert clean(raw) == safe


def test_text_that_is_too_long_is_cut_and_shows_it() -> None:
    assert clean("x" * 100, 10) == "x" * 9 + "…"
    assert clean("x" * 10, 10) == "x" * 10


@given(st.text())
def test_clean_text_holds_no_control_characters_and_stays_clean(text: str) -> None:
    once = clean(text)
    assert not [char for char in once if (ord(char) < 32 and char not in "\n\t") or 0x7F <= ord(char) < 0xA0]
    assert clean(once) == once


def test_names_and_messages_of_cases_are_cleaned() -> None:
    case = parse(changed(name="test\x1b[2J", message="\x00", resolved={"a\x07": ["\x1b[1m!"]}))
    assert isinstance(case, Case)
    assert (case.name, case.message) == ("test", "\\x00")
    assert case.resolved == {"a\\x07": ["!"]}


@given(st.text(max_size=50))
def test_a_message_that_is_passed_on_is_the_same_message(text: str) -> None:
    said = json.dumps({"cell": "a", "text": text})
    for whole in (changed(message=text), b'{"log": %s}' % said.encode(), line("done", DONE), line("ready", READY)):
        message = parse(whole)
        assert parse(render(message)) == message


DONE = {"cell": "a", "duration_s": 1.5, "death": {"signal": "SIGSEGV"}}
READY = {"environment": {"vllm": "0.32.0"}, "import_s": 7}
