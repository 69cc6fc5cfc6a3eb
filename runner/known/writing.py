"""Known issues written into the text of a matrix: what an entry says anew is replaced, all else stays byte for byte.

YAML is read for the places of its parts alone. A library that writes the whole document again keeps its comments, but
not how it is laid out: the change would not be the only thing in the diff.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from runner.conditions import Condition
from runner.errors import UsageError
from runner.known import spelling
from runner.known.entries import Change, names_what_is_gone
from runner.matrix import KnownIssue, Matrix

Splice = tuple[int, int, str]
"""From and to which character what stands instead."""


@dataclass(frozen=True, slots=True)
class _Place:
    """One entry in the text: its node, and the lines that are its own."""

    node: Any
    start: int
    end: int


def rewritten(text: str, change: Change, chart: Matrix) -> str:
    """The text of the matrix with its known issues changed; `chart` is what the text says.

    UsageError where the list of known issues is written in a way that has no lines for each entry.
    """
    if not change:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    if not text.endswith("\n"):
        text += newline
    top: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    key, found = next(((k, v) for k, v in top.value if k.value == "known"), (None, None))
    if found is None or not found.value:
        return _begun(text, key, found, change.added, newline)
    if found.flow_style:
        raise UsageError("`known` is a list in brackets: write each entry on lines of its own, as `- where: ...`")
    indent = found.start_mark.column
    places = list(_places(text, found))
    splices: list[Splice] = []
    for i, place in enumerate(places):
        if i in change.fitted:
            blocks = [_fitted(text, place, chart.known[i], new, chart) for new in change.fitted[i]]
            splices.append((place.start, place.end, "".join(blocks)))
    if change.added:
        end = places[-1].end
        splices.append((end, end, _lines(change.added, indent, newline)))
    elif not change.of(chart.known):
        splices.append((*_behind_colon(text, key), " []"))
    return _spliced(text, splices)


def _begun(text: str, key: Any, found: Any, added: Iterable[KnownIssue], newline: str) -> str:
    """The text with the first entries of its list."""
    lines = _lines(added, 2, newline)
    if key is None:
        return text + f"{newline}known:{newline}{lines}"
    colon, _ = _behind_colon(text, key)
    line_end = text.index("\n", found.end_mark.index) + 1
    return text[:colon] + text[found.end_mark.index : line_end] + lines + text[line_end:]


def _behind_colon(text: str, key: Any) -> tuple[int, int]:
    place = text.index(":", key.end_mark.index) + 1
    return place, place


def _lines(entries: Iterable[KnownIssue], indent: int, newline: str) -> str:
    return "".join(spelling.block(entry, indent).replace("\n", newline) for entry in entries)


def _places(text: str, found: Any) -> Iterator[_Place]:
    dashes = [
        token.start_mark.index
        for token in yaml.scan(text, Loader=yaml.SafeLoader)
        if isinstance(token, yaml.BlockEntryToken)
    ]
    for node in found.value:
        dash = max(place for place in dashes if place < node.start_mark.index)
        start = text.rindex("\n", 0, dash) + 1
        yield _Place(node, start, text.index("\n", _last(text, node)) + 1)


def _last(text: str, node: Any) -> int:
    """Where the last character of a node is; the mark at the end of a block is at what follows it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return len(text[: node.end_mark.index].rstrip())
    last = node.value[-1]
    return _last(text, last[1] if isinstance(last, tuple) else last)


def _fitted(text: str, place: _Place, old: KnownIssue, new: KnownIssue, chart: Matrix) -> str:
    """The lines of an entry that says something else now."""
    parts = {key.value: (key, value) for key, value in place.node.value}
    splices = list(_where(text, parts["where"][1], old, new, chart))
    said = {
        "buffer": spelling.value(list(new.buffer)) if new.buffer != old.buffer else "",
        "until": spelling.end(new.until) if new.until and new.until != old.until else "",
        "owner": spelling.value(new.owner) if new.owner != old.owner else "",
    }
    missing = {}
    for name, words in said.items():
        if words and name in parts:
            splices.append(_instead(text, *parts[name], words))
        elif words:
            missing[name] = words
    if missing:
        splices.append(_more(text, place.node, missing))
    inside = [(start - place.start, end - place.start, piece) for start, end, piece in splices]
    return _spliced(text[place.start : place.end], inside)


def _where(text: str, node: Any, old: KnownIssue, new: KnownIssue, chart: Matrix) -> Iterator[Splice]:
    """What changes in a selector, axis by axis."""
    parts = {key.value: (key, value) for key, value in node.value}
    missing = {}
    everything = Condition("!=", ())
    for axis in chart.axes:
        was, now = (entry.selector.conditions.get(axis, everything) for entry in (old, new))
        same = all(was.holds(value) == now.holds(value) for value in chart.axes[axis])
        if same and not names_what_is_gone(was, chart.axes[axis]):
            continue
        words = spelling.value([value for value in chart.axes[axis] if now.holds(value)], axis=axis)
        if axis in parts:
            yield _instead(text, *parts[axis], words)
        else:
            missing[axis] = words
    if missing:
        yield _more(text, node, missing)


def _instead(text: str, key: Any, value: Any, words: str) -> Splice:
    """Other words for a value; a list or text in a block is replaced from its key on."""
    end = _last(text, value)
    inline = value.style not in ("|", ">") if isinstance(value, yaml.ScalarNode) else value.flow_style
    return (value.start_mark.index, end, words) if inline else (key.end_mark.index, end, f": {words}")


def _more(text: str, node: Any, missing: dict[str, str]) -> Splice:
    """More keys, behind the last one of a mapping."""
    end = _last(text, node.value[-1][1])
    if node.flow_style:
        return end, end, "".join(f", {key}: {words}" for key, words in missing.items())
    if "\n" in text[end:]:
        end = text.index("\n", end)  # behind a comment
        end -= text[end - 1] == "\r"
    newline = "\r\n" if "\r\n" in text else "\n"
    return end, end, "".join(f"{newline}{' ' * node.start_mark.column}{key}: {w}" for key, w in missing.items())


def _spliced(text: str, splices: Iterable[Splice]) -> str:
    parts, here = [], 0
    for start, end, piece in sorted(splices, key=lambda one: one[:2]):
        parts += [text[here:start], piece]
        here = end
    return "".join([*parts, text[here:]])
