"""How an entry of matrix.yaml is written by one who takes care: the words of its values, and its lines. Pure."""

from datetime import date
from typing import Any

import yaml

from runner.matrix import KnownIssue

WIDTH = 120
_SWITCHES = ("on", "off")


def value(what: object, axis: str = "") -> str:
    """One value, or a list of them in brackets where they are not one."""
    if isinstance(what, list):
        words = [value(one, axis=axis) for one in what]
        return words[0] if len(words) == 1 else f"[{', '.join(words)}]"
    if axis == "hybrid" and what in _SWITCHES:
        return str(what)  # YAML 1.1 reads a boolean, and the matrix the name
    if isinstance(what, int | date):
        return str(what)
    return _string(str(what), quote=axis == "vllm")


def end(until: date | str) -> str:
    """A day, or a release in quotes as all releases are."""
    return _string(until, quote=True) if isinstance(until, str) else str(until)


def block(entry: KnownIssue, indent: int) -> str:
    """The lines of a new entry, behind a dash that is indented by so many spaces."""
    margin = " " * (indent + 2)
    lines = [_where(entry, margin)]
    fields: dict[str, Any] = {"state": entry.state.value}
    fields |= {"buffer": list(entry.buffer)} if entry.buffer else {}
    fields |= {"how": [how.value for how in entry.how]} if entry.how else {}
    fields |= {"flaky": "true"} if entry.flaky else {}
    fields["issue"] = entry.issue
    fields |= {"owner": entry.owner} if entry.owner else {}
    for name, what in fields.items():
        lines.append(f"{name}: {what if name == 'flaky' else value(what)}\n")
    lines += _text("because", entry.because)
    if entry.until is not None:
        lines.append(f"until: {end(entry.until)}\n")
    first, *rest = lines
    return " " * indent + "- " + first + "".join(margin + line for line in rest)


def _where(entry: KnownIssue, margin: str) -> str:
    """A selector in braces, broken between its axes where it is too long for a line, and within one only if need be."""
    pairs = [f"{axis}: {value(list(c.values), axis=axis)}" for axis, c in entry.selector.conditions.items()]
    room = WIDTH - len(margin) - 2
    pieces = [piece for pair in pairs for piece in (pair.split(", ") if len(pair) > room // 2 else [pair])]
    pieces[0] = "where: {" + pieces[0]
    pieces = [f"{piece}, " for piece in pieces[:-1]] + [pieces[-1] + "}"]
    lines, line = [], ""
    for piece in pieces:
        if line and len(line) + len(piece) > room:
            lines.append(line.rstrip())
            line = ""
        line += piece
    return f"\n{margin}  ".join([*lines, line]) + "\n"


def _text(key: str, text: str) -> list[str]:
    """A text on as many lines as it takes."""
    dumped = yaml.safe_dump({key: text}, width=WIDTH - 8, allow_unicode=True)
    return dumped.splitlines(keepends=True)


def _string(text: str, *, quote: bool = False) -> str:
    """Without quotes only where YAML would read the same string, also within brackets."""
    try:
        plain = not quote and yaml.safe_load(f"[{text}, {text}]") == [text, text]
    except yaml.YAMLError:
        plain = False
    return (
        text
        if plain and "\n" not in text
        else yaml.safe_dump(text, default_style='"', width=1 << 20, allow_unicode=True).strip()
    )
