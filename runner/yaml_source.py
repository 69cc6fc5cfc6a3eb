"""YAML text into plain data that remembers line and column, without YAML's traps.

Read from PyYAML's stream of events: nothing is expanded, constructed or resolved to an object, so that aliases, tags
and deep nesting cost nothing before they are refused. A plain scalar keeps what was written beside what YAML 1.1 makes
of it (`on` is a boolean, `3.10` a float), so that a message can show both.
"""

import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from runner.errors import MatrixError, Mistake, UsageError
from runner.nearest import quoted

Loc = tuple[str | int, ...]
Place = tuple[int, int]

MAX_BYTES = 1 << 20
MAX_DEPTH = 10
_TAG = "tag:yaml.org,2002:"
_PLAIN_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,11})")


@dataclass(slots=True)
class Source:
    """What a text holds and where: `places` has each value, `keys` each key and list item, by their path."""

    data: Any = None
    places: dict[Loc, Place] = field(default_factory=dict)
    keys: dict[Loc, Place] = field(default_factory=dict)
    written: dict[Loc, str] = field(default_factory=dict)
    """How the scalars that YAML does not read as strings were written."""
    broken: set[Loc] = field(default_factory=set)
    """Paths that have a mistake already; what is there is a placeholder."""
    _above: set[Loc] = field(default_factory=set)
    mistakes: list[Mistake] = field(default_factory=list)

    def mistake(self, at: Loc, message: str, *, key: bool = False, usable: bool = False) -> None:
        """Note what is wrong at a path: with the value, or with its key; further checks skip what is not `usable`."""
        places = (self.keys, self.places) if key else (self.places, self.keys)
        found = next((p[at] for p in places if at in p), None) or self.places[at[:-1]]
        self.mistakes.append(Mistake(*found, message))
        if not usable:
            self.spoil(at)

    def spoil(self, at: Loc) -> None:
        """What is at this path is a placeholder, about which there is nothing more to say."""
        self.broken.add(at)
        self._above.update(at[:depth] for depth in range(len(at)))

    def is_broken(self, at: Loc) -> bool:
        """Whether something at this path, above it or below it, has a mistake."""
        return at in self._above or self.is_within_broken(at)

    def is_within_broken(self, at: Loc) -> bool:
        """Whether something at this path or above it has a mistake."""
        return any(at[:depth] in self.broken for depth in range(len(at) + 1))

    def mapping(self, *at: str | int) -> dict[str, Any]:
        """The mapping at a path; an empty one where there is something else, or nothing."""
        found = self._at(at)
        return found if isinstance(found, dict) else {}

    def items(self, *at: str | int) -> list[Any]:
        """The list at a path; an empty one where there is something else, or nothing."""
        found = self._at(at)
        return found if isinstance(found, list) else []

    def _at(self, at: Loc) -> Any:
        found = self.data
        for step in at:
            try:
                found = found[step]
            except (TypeError, KeyError, IndexError):
                return None
        return found


def read(path: Path, what: str, give: str) -> str:
    """The text of a file that is to hold `what`; UsageError says to `give` another, MatrixError where it is no text.

    Reads no more than the limit, so that a huge file, or one without end, fails at once.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file: give {give}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}): give {give}") from None
    if len(raw) > MAX_BYTES:
        raise MatrixError(str(path), [Mistake(1, 1, f"the file is larger than 1 MiB: this is hardly a {what}")])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]  # without the byte order mark
        place = before.count(b"\n") + 1, len(before[before.rfind(b"\n") + 1 :].decode()) + 1
        message = f"not UTF-8: byte 0x{error.object[error.start]:02x} starts no character: save the file as UTF-8"
        raise MatrixError(str(path), [Mistake(*place, message)]) from None


def parse(text: str, name: str, what: str = "matrix") -> Source:
    """Read one YAML document; MatrixError where it is no YAML, the mistakes that leave it readable in the result."""
    reader = _Reader(what)
    place = (1, 1)
    try:
        reader.read(loader := yaml.SafeLoader(text))
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = (before.count("\n") + 1, error.position - before.rfind("\n"))
        problem = f"the control character {text[error.position]!a} cannot stand in YAML: remove it"
    except yaml.MarkedYAMLError as error:
        place, problem = _explain(error)
    except (ValueError, OverflowError):  # PyYAML's scanner on an escape such as "\UFFFFFFFF"
        place, problem = _place(loader.get_mark()), "not YAML: an escape or a number is out of range"
    except _UnreadableError as error:
        place, problem = error.place, str(error)
    else:
        return reader.source
    raise MatrixError(name, [*reader.source.mistakes, Mistake(*place, problem)])


class _UnreadableError(Exception):
    """Reading on makes no sense."""

    def __init__(self, place: Place, message: str) -> None:
        self.place = place
        super().__init__(message)


class _Reader:
    """Builds the data while the events go by."""

    def __init__(self, what: str) -> None:
        self.source = Source()
        self._what = what
        self._loader: Any = None

    def read(self, loader: Any) -> None:
        self._loader = loader
        loader.get_event()  # the start of the stream
        if loader.check_event(yaml.StreamEndEvent):
            raise _UnreadableError((1, 1), "the file is empty")
        loader.get_event()  # the start of the document
        self.source.data = self._value(())
        loader.get_event()  # the end of the document
        if not loader.check_event(yaml.StreamEndEvent):
            place = _place(loader.peek_event().start_mark)
            raise _UnreadableError(place, f"a second document begins here: one file holds one {self._what}")

    def _value(self, at: Loc) -> Any:
        event = self._loader.get_event()
        place = self.source.places[at] = _place(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            self.source.mistake(at, f"the alias {quoted(f'*{event.anchor}')} is not followed here: write the value out")
            return None
        if event.anchor is not None:
            self.source.mistake(at, f"anchors are not used here: remove {quoted(f'&{event.anchor}')}", usable=True)
        if event.tag is not None:
            tag = event.tag.replace(_TAG, "!!", 1)
            quote = f' (a comparison must be quoted: "{tag}")' if tag.startswith("!=") else ""
            self.source.mistake(at, f"tags are not used here: remove {quoted(tag)}{quote}")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(at, event)
        if len(at) >= MAX_DEPTH:
            deep = f"nested more than {MAX_DEPTH} levels deep: a {self._what} needs no more than six"
            raise _UnreadableError(place, deep)
        return self._sequence(at) if isinstance(event, yaml.SequenceStartEvent) else self._mapping(at)

    def _sequence(self, at: Loc) -> list[Any]:
        items: list[Any] = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            here = (*at, len(items))
            self.source.keys[here] = _place(self._loader.peek_event().start_mark)
            items.append(self._value(here))
        self._loader.get_event()
        return items

    def _mapping(self, at: Loc) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            place = _place(self._loader.peek_event().start_mark)
            key = self._key(at, place)
            here = (*at, key)
            if first := self.source.keys.get(here):
                self.source.mistakes.append(Mistake(*place, f"duplicate key {quoted(key)}, first on line {first[0]}"))
                # The first one stands; mistakes inside the second are still told, under a path of its own.
                self._value((*at, f"{key} again on line {place[0]}"))
                continue
            self.source.keys[here] = place
            entries[key] = self._value(here)
        self._loader.get_event()
        return entries

    def _key(self, at: Loc, place: Place) -> str:
        spot = (*at, f"the key at {place}")
        key = self._value(spot)
        if isinstance(key, str):
            if spot in self.source.broken:
                self.source.spoil((*at, key))
            return key
        if spot not in self.source.broken:
            written = self.source.written.get(spot)
            what = "a list or a mapping" if written is None else f"{written or 'nothing'}, read as {kind(key)}"
            self.source.mistake(spot, f"a key must be a string, not {what}" + (": quote it" if written else ""))
        name = self.source.written.get(spot, str(spot[-1]))
        self.source.spoil((*at, name))
        return name

    def _scalar(self, at: Loc, event: yaml.ScalarEvent) -> Any:
        text: str = event.value
        if wrong := [c for c in text if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]:
            self.source.mistake(at, f"the control character {wrong[0]!a} cannot stand in a value: remove it")
            return text
        tag = self._loader.resolve(yaml.ScalarNode, text, event.implicit).removeprefix(_TAG)
        if tag in ("str", "timestamp", "value"):
            return text
        self.source.written[at] = text
        match tag:
            case "bool":
                return yaml.SafeLoader.bool_values[text.lower()]
            case "null":
                return None
            case "float":
                return float("nan")  # no value of a matrix is a float: only its kind matters
            case "int" if _PLAIN_INTEGER.fullmatch(text):
                return int(text)
            case "int":
                self.source.mistake(at, f"{quoted(text)} is a number in a YAML 1.1 notation: write it in plain digits")
                return 0
            case _:
                self.source.mistake(at, f"{quoted(text)} merges mappings in YAML: write the entries out")
                return text


def kind(value: object) -> str:
    """What a value is in the words of YAML."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _place(mark: Any) -> Place:
    return mark.line + 1, mark.column + 1


def _explain(error: yaml.MarkedYAMLError) -> tuple[Place, str]:
    """Where YAML's grammar broke, in PyYAML's words, with a remedy for what people write most often."""
    mark = error.problem_mark or error.context_mark
    problem = (error.problem or "malformed").replace("%r", "'")
    if "'\\t'" in problem:
        return _place(mark), "not YAML: a tab cannot indent or separate: use spaces"
    if "'>'" in problem or error.context in ("while scanning a block scalar", "while scanning a tag"):
        return _place(mark), f'not YAML: {problem} (a comparison must be quoted: ">=3")'
    since = f", {error.context} that began on line {error.context_mark.line + 1}" if error.context_mark else ""
    return _place(mark), f"not YAML: {problem}{since}"
