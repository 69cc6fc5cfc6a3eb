"""Text from results is untrusted: it comes from a process under test. Here it is made harmless and short."""

import math
import re
import unicodedata

from runner.model import Batch

_FOLDER = re.compile(
    r"""(?<![\w/:.])~?/(?:
    (?:[^\s"'`()/]+/)* site-packages/ |
    (?:[^\s"'`()/]+/)+? (?=(?:vllm|cases|plugin)/) |
    (?:[^\s"'`()/]+/)+
    )""",
    re.VERBOSE,
)
"""Folders of a machine; what is in vLLM, the cases or the plugin keeps its path in there."""


def public(text: str) -> str:
    """The text without folders of this machine: for what is read elsewhere."""
    return _FOLDER.sub("", text)


def plain(text: str) -> str:
    """The same text with every character shown that could steer a terminal, a reader's eye or an XML parser.

    Control characters, escape sequences, bidirectional overrides, zero-width characters and lone surrogates become
    visible escapes such as `\\x1b`; newlines stay, tabs become spaces.
    """
    text = text.replace("\r\n", "\n").expandtabs(4)
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(char if char == "\n" or _harmless(char) else _escape(char) for char in text)


def _harmless(char: str) -> bool:
    category = unicodedata.category(char)
    return category == "Zs" or category[0] not in "CZ"


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(text: str, limit: int = 300) -> str:
    """The text on one line, cut in the middle: an error's start names it, its end explains it."""
    if len(text) > 8 * limit:
        text = f"{text[: 4 * limit]} … {text[-4 * limit :]}"
    text = " ".join(plain(text).split())
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]} … {text[len(text) - (limit - head - 3) :]}"


def several_lines(text: str, *, lines: int, width: int = 400) -> list[str]:
    """The last lines of a message, where Python and pytest put what went wrong, each cut to a width."""
    kept = [line.rstrip() for line in plain(text[-lines * width * 4 :]).split("\n") if line.strip()]
    shown = [line if len(line) <= width else f"{line[: width - 1]}…" for line in kept[-lines:]]
    return [f"… {len(kept) - lines} lines above", *shown] if len(kept) > lines else shown


def numbers(values: tuple[int, ...], limit: int = 8) -> str:
    """`3, 254x 1, 300, … 12 more`: repeats are counted and a long batch keeps its start."""
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1] = (value, runs[-1][1] + 1)
        else:
            runs.append((value, 1))
    words = [f"{times}x {value}" if times > 1 else str(value) for value, times in runs[:limit]]
    left_out = sum(times for _, times in runs[limit:])
    return ", ".join(words) + (f", … {left_out} more" if left_out else "")


def batch(value: Batch) -> str:
    return f"query_lens {numbers(value.query_lens) or 'none'}; seq_lens {numbers(value.seq_lens) or 'none'}"


def count(number: int, word: str) -> str:
    """`1 cell`, `3,780 cells`."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")


def finite(number: float) -> float:
    """The number, or 0 for an infinite one or none, which most formats cannot hold."""
    return number if math.isfinite(number) else 0.0
