"""GitHub's expressions, as far as our workflows use them; anything else is an error, never ignored.

Source: docs.github.com, "Evaluate expressions in workflows and actions".
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?)|(?P<word>[A-Za-z_][\w-]*)"
    r"|(?P<sign>==|!=|&&|\|\||[!()\[\].,]))"
)
STATUS = {"success", "failure", "always", "cancelled"}
CONTEXTS = {"github", "needs", "matrix", "inputs", "steps", "env", "vars", "secrets", "runner"}
Functions = Mapping[str, Callable[..., Any]]


class Unknown(Exception):
    """A feature that the harness does not know."""


def tokens(text: str) -> list[tuple[str, str]]:
    found, place = [], 0
    text = text.rstrip()
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise Unknown(f"expression {text!r} at {text[place:]!r}")
        found.append((match.lastgroup, match[match.lastgroup]))
        place = match.end()
    return found


def has_status(text: str) -> bool:
    """Whether a condition asks for the status itself; GitHub adds success() to one that does not."""
    words = tokens(text)
    return any(kind == "word" and word in STATUS and words[i + 1 : i + 2] == [("sign", "(")]
               for i, (kind, word) in enumerate(words))  # fmt: skip


def truth(value: Any) -> bool:
    return value not in (None, False, 0, "")


def text_of(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float() | str():
            return f"{value:g}" if isinstance(value, float) else str(value)
    raise Unknown(f"an object as text: {value!r}")


class Parser:
    """Recursive descent; && and || give one of their operands and do not look at the other."""

    def __init__(self, text: str, contexts: Mapping[str, Any], functions: Functions) -> None:
        self.text, self.words, self.place = text, tokens(text), 0
        self.contexts, self.functions, self.live = contexts, functions, True

    def parse(self) -> Any:
        value = self.either()
        if self.place != len(self.words):
            raise Unknown(f"expression {self.text!r}: {self.words[self.place :]}")
        return value

    def take(self, *signs: str) -> str | None:
        if self.place < len(self.words) and self.words[self.place] in [("sign", sign) for sign in signs]:
            self.place += 1
            return self.words[self.place - 1][1]
        return None

    def need(self, sign: str) -> None:
        if not self.take(sign):
            raise Unknown(f"expression {self.text!r}: {sign!r} is missing")

    def skipping(self, skip: bool, parse: Callable[[], Any]) -> Any:
        before, self.live = self.live, self.live and not skip
        try:
            return parse()
        finally:
            self.live = before

    def either(self) -> Any:
        value = self.both()
        while self.take("||"):
            done = truth(value)
            other = self.skipping(done, self.both)
            value = value if done else other
        return value

    def both(self) -> Any:
        value = self.equal()
        while self.take("&&"):
            done = not truth(value)
            other = self.skipping(done, self.equal)
            value = value if done else other
        return value

    def equal(self) -> Any:
        value = self.negated()
        while sign := self.take("==", "!="):
            other = self.negated()
            if not self.live:
                continue
            if value is not None and other is not None and type(value) is not type(other):
                raise Unknown(f"expression {self.text!r} compares {value!r} with {other!r}")
            same = (
                value.lower() == other.lower() if isinstance(value, str) and isinstance(other, str) else value == other
            )
            value = same if sign == "==" else not same
        return value

    def negated(self) -> Any:
        return not truth(self.negated()) if self.take("!") else self.dotted()

    def dotted(self) -> Any:
        value = self.atom()
        while sign := self.take(".", "["):
            if sign == ".":
                kind, key = self.words[self.place]
                self.place += 1
                if kind != "word":
                    raise Unknown(f"expression {self.text!r}: {key!r} after a dot")
                value = value.get(key) if isinstance(value, Mapping) else None
            else:
                index = self.either()
                self.need("]")
                inside = isinstance(value, list) and isinstance(index, int) and 0 <= index < len(value)
                value = value[index] if inside else None
        return value

    def atom(self) -> Any:
        if self.take("("):
            value = self.either()
            self.need(")")
            return value
        if self.place >= len(self.words):
            raise Unknown(f"expression {self.text!r} ends too early")
        kind, word = self.words[self.place]
        self.place += 1
        match kind:
            case "string":
                return word[1:-1].replace("''", "'")
            case "number":
                return float(word) if "." in word else int(word)
            case "word" if word in {"true", "false", "null"}:
                return {"true": True, "false": False, "null": None}[word]
            case "word" if self.take("("):
                return self.call(word)
            case "word" if word in CONTEXTS:
                if word not in self.contexts:
                    raise Unknown(f"{word!r} cannot be used here: {self.text!r}")
                return self.contexts[word]
        raise Unknown(f"expression {self.text!r}: {word!r}")

    def call(self, name: str) -> Any:
        arguments = []
        while not self.take(")"):
            arguments.append(self.either())
            self.take(",")
        if name not in self.functions:
            raise Unknown(f"the function {name!r} in {self.text!r}")
        return self.functions[name](*arguments) if self.live else None


FUNCTIONS: Functions = {"fromJSON": json.loads, "toJSON": lambda value: json.dumps(value, indent=2)}


def evaluate(text: str, contexts: Mapping[str, Any], functions: Functions) -> Any:
    return Parser(text, contexts, {**FUNCTIONS, **functions}).parse()


def fill(value: Any, contexts: Mapping[str, Any], functions: Functions) -> Any:
    """A value of a workflow with its `${{ }}` evaluated; one that is nothing else keeps its type."""
    if isinstance(value, Mapping):
        return {key: fill(one, contexts, functions) for key, one in value.items()}
    if isinstance(value, list):
        return [fill(one, contexts, functions) for one in value]
    if not isinstance(value, str):
        return value
    parts = re.split(r"\$\{\{(.*?)\}\}", value, flags=re.DOTALL)
    if len(parts) == 3 and not parts[0].strip() and not parts[2].strip():
        return evaluate(parts[1], contexts, functions)
    return "".join(
        text_of(evaluate(part, contexts, functions)) if number % 2 else part for number, part in enumerate(parts)
    )


def holds(condition: Any, contexts: Mapping[str, Any], functions: Functions) -> bool:
    """An `if:`; without a status function in it, only after success."""
    text = str(condition if condition is not None else "success()")
    inner = re.fullmatch(r"\s*\$\{\{(.*)\}\}\s*", text, re.DOTALL)
    text = inner[1] if inner else text
    if not has_status(text) and not functions["success"]():
        return False
    return truth(evaluate(text, contexts, functions))
