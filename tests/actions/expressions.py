"""GitHub's expressions: values, coercion, operators, filters and functions; anything else is an error, never ignored.

Source: docs.github.com, "Evaluate expressions in workflows and actions". `test_expressions_differ.py` compares this
with the evaluator that GitHub publishes. Numbers are floats, as they are there; an object is a dict, an array a list.
"""

import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^']|'')*')"
    r"|(?P<sign>==|!=|<=|>=|&&|\|\||[<>!()\[\],*]|(?<=[\w\])*])\s*\.)"
    r"|(?P<number>[-+.\d][^\s()\[\],!<>=&|]*)"
    r"|(?P<word>[A-Za-z_][\w-]*))"
)
STATUS = {"success", "failure", "always", "cancelled"}
CONTEXTS = {
    "github",
    "needs",
    "matrix",
    "inputs",
    "steps",
    "env",
    "vars",
    "secrets",
    "runner",
    "strategy",
    "job",
    "jobs",
}
LITERALS = {"true": True, "false": False, "null": None, "NaN": math.nan, "Infinity": math.inf}
Functions = Mapping[str, Callable[..., Any]]


class Unknown(Exception):
    """A feature that the harness does not know, or that GitHub refuses."""


class Filtered(list[Any]):
    """What `*` gives: an index goes to each of its items."""


def tokens(text: str) -> list[tuple[str, str]]:
    found, place = [], 0
    text = text.rstrip()
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise Unknown(f"expression {text!r} at {text[place:]!r}")
        found.append((match.lastgroup, match[match.lastgroup].strip()))
        place = match.end()
    return found


def has_status(text: str) -> bool:
    """Whether a condition asks for the status itself; GitHub adds success() to one that does not."""
    words = tokens(text)
    return any(kind == "word" and word.lower() in STATUS and words[i + 1 : i + 2] == [("sign", "(")]
               for i, (kind, word) in enumerate(words))  # fmt: skip


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def truth(value: Any) -> bool:
    """Null, false, 0, NaN and the empty text are false; every object and array is true."""
    if isinstance(value, Mapping | list):
        return True
    return bool(value) and not (isinstance(value, float) and math.isnan(value))


def number_of(value: Any) -> float:
    """As JavaScript's Number(); NaN for an object or an array."""
    match value:
        case None:
            return 0.0
        case bool() | int() | float():
            return float(value)
        case str():
            return _parsed(value.strip())
    return math.nan


def _parsed(text: str) -> float:
    if not text:
        return 0.0
    if match := re.fullmatch(r"0([xob])([0-9a-f]+)", text.lower()):
        try:
            return float(int(match[2], {"x": 16, "o": 8, "b": 2}[match[1]]))
        except ValueError:
            return math.nan
    if re.fullmatch(r"[+-]?Infinity", text):
        return math.copysign(math.inf, -1 if text[0] == "-" else 1)
    return float(text) if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text) else math.nan


def text_of(value: Any) -> str:
    """A value as text; an object and an array are called so."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _number_text(float(value))
        case str():
            return value
        case Mapping():
            return "Object"
        case list():
            return "Array"
    raise Unknown(f"{value!r} as text")


def _number_text(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return {True: "NaN"}.get(math.isnan(value), "Infinity" if value > 0 else "-Infinity")
    value = float(f"{value:.15f}") if abs(value) < 1e21 else value  # 15 digits behind the point
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    return re.sub(r"e([+-])0*(\d)", r"e\1\2", text) if "e" in text else text


def equal(left: Any, right: Any) -> bool:
    """Texts without case; of different kinds as numbers; objects and arrays only with themselves."""
    left, right = _alike(left, right)
    if isinstance(left, str) and isinstance(right, str):
        return left.upper() == right.upper()
    if isinstance(left, Mapping | list) or isinstance(right, Mapping | list):
        return left is right
    return type(left) is type(right) and bool(left == right)


def greater(left: Any, right: Any) -> bool:
    left, right = _alike(left, right)
    if isinstance(left, str) and isinstance(right, str):
        return left.upper() > right.upper()
    if isinstance(left, bool) and isinstance(right, bool):
        return left and not right
    return isinstance(left, float) and isinstance(right, float) and left > right


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Both of one kind where that can be. A text beside a number is a number; so are null and a boolean."""
    left, right = (float(one) if is_number(one) else one for one in (left, right))
    kinds = [_kind(left), _kind(right)]
    if kinds[0] == kinds[1]:
        return left, right
    if set(kinds) == {"number", "text"}:
        return number_of(left), number_of(right)
    if kinds[0] in {"null", "boolean"}:
        return _alike(number_of(left), right)
    if kinds[1] in {"null", "boolean"}:
        return _alike(left, number_of(right))
    return left, right


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case Mapping():
            return "object"
    return "array"


def item(value: Any, index: Any) -> Any:
    """`value[index]`; null where there is none. Names of an object are without case."""
    if isinstance(value, Filtered):
        found = Filtered()
        for one in value:
            if isinstance(one, Mapping) and not isinstance(index, Mapping | list):
                name = _name(one, text_of(index))
                found.extend([] if name is None else [one[name]])
            elif isinstance(one, list) and (place := _place(one, index)) is not None:
                found.append(one[place])
        return found
    if isinstance(value, Mapping) and not isinstance(index, Mapping | list):
        name = _name(value, text_of(index))
        return None if name is None else value[name]
    if isinstance(value, list) and (place := _place(value, index)) is not None:
        return value[place]
    return None


def every(value: Any) -> Filtered:
    """`value.*`"""
    if isinstance(value, Filtered):
        return Filtered(one for inner in value for one in every(inner))
    return Filtered(value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ())


def _name(value: Mapping[str, Any], wanted: str) -> str | None:
    return next((name for name in value if name.lower() == wanted.lower()), None)


def _place(value: list[Any], index: Any) -> int | None:
    number = number_of(index)
    if not math.isfinite(number) or number < 0 or math.floor(number) >= len(value):
        return None
    return math.floor(number)


class Parser:
    """Recursive descent; && and || give one of their operands and do not look at the other."""

    def __init__(self, text: str, contexts: Mapping[str, Any], functions: Functions) -> None:
        self.text, self.words, self.place = text, tokens(text), 0
        self.contexts = {name.lower(): value for name, value in contexts.items()}
        self.functions = {name.lower(): function for name, function in functions.items()}
        self.live = True

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
        value = self.equality()
        while self.take("&&"):
            done = not truth(value)
            other = self.skipping(done, self.equality)
            value = value if done else other
        return value

    def equality(self) -> Any:
        value = self.comparison()
        while sign := self.take("==", "!="):
            same = equal(value, self.comparison())
            value = same if sign == "==" else not same
        return value

    def comparison(self) -> Any:
        value = self.negated()
        while sign := self.take("<=", ">=", "<", ">"):
            other = self.negated()
            more = greater(value, other) if sign[0] == ">" else greater(other, value)
            value = more or (len(sign) == 2 and equal(value, other))
        return value

    def negated(self) -> Any:
        return not truth(self.negated()) if self.take("!") else self.indexed()

    def indexed(self) -> Any:
        start = self.place
        value = self.atom()
        kind, word = self.words[start]
        if kind in {"string", "number"} or (kind == "word" and word in LITERALS):
            return value  # GitHub takes no index behind a literal
        while sign := self.take(".", "["):
            if sign == "[":
                index = ("*",) if self.take("*") else self.either()
                self.need("]")
            elif self.take("*"):
                index = ("*",)
            else:
                index = self.property()
            value = every(value) if index == ("*",) else item(value, index)
        return value

    def property(self) -> str:
        kind, word = self.words[self.place] if self.place < len(self.words) else ("", "")
        self.place += 1
        if kind != "word":
            raise Unknown(f"expression {self.text!r}: {word!r} after a dot")
        return word

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
                if math.isnan(value := _parsed(word)):
                    raise Unknown(f"expression {self.text!r}: {word!r} is no number")
                return value
            case "word" if word in LITERALS:
                return LITERALS[word]
            case "word" if self.take("("):
                return self.call(word)
            case "word" if word.lower() in CONTEXTS:
                if word.lower() not in self.contexts:
                    raise Unknown(f"{word!r} cannot be used here: {self.text!r}")
                return self.contexts[word.lower()]
        raise Unknown(f"expression {self.text!r}: {word!r}")

    def call(self, name: str) -> Any:
        arguments = []
        while not self.take(")"):
            arguments.append(self.either())
            if self.words[self.place : self.place + 1] != [("sign", ")")]:
                self.need(",")
        if name.lower() not in self.functions:
            raise Unknown(f"the function {name!r} in {self.text!r}")
        function = self.functions[name.lower()]
        try:
            inspect.signature(function).bind(*arguments)
        except TypeError as error:
            raise Unknown(f"the function {name!r} in {self.text!r}: {error}") from error
        return function(*arguments) if self.live else None


def _contains(where: Any, what: Any) -> bool:
    if isinstance(where, list):
        return any(equal(what, one) for one in where)
    if isinstance(where, Mapping) or isinstance(what, Mapping | list):
        return False
    return text_of(what).lower() in text_of(where).lower()


def _at_an_end(of: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def check(text: Any, part: Any) -> bool:
        if isinstance(text, Mapping | list) or isinstance(part, Mapping | list):
            return False
        return of(text_of(text).upper(), text_of(part).upper())

    return check


def _format(text: Any, *values: Any) -> str:
    def one(match: re.Match[str]) -> str:
        if match[0] in {"{{", "}}"}:
            return match[0][0]
        if match["number"] is None or int(match["number"]) >= len(values):
            raise Unknown(f"format string {text!r} with {len(values)} values")
        return text_of(values[int(match["number"])])

    return re.sub(r"\{\{|\}\}|\{(?P<number>\d+)\}|[{}]", one, text_of(text))


def _join(value: Any, separator: Any = ",") -> str:
    if isinstance(value, list):
        between = "," if isinstance(separator, Mapping | list) else text_of(separator)
        return between.join(map(text_of, value))
    return "" if isinstance(value, Mapping) else text_of(value)


def _from_json(value: Any) -> Any:
    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no JSON")

    try:
        return json.loads(text_of(value), parse_int=float, parse_constant=refuse)
    except ValueError as error:
        raise Unknown(f"fromJSON of {value!r}") from error


def _to_json(value: Any) -> str:
    def plain(one: Any) -> Any:
        match one:
            case Mapping():
                return {key: plain(inner) for key, inner in one.items()}
            case list():
                return [plain(inner) for inner in one]
            case float() if math.isnan(one) or math.isinf(one):
                return None
            case float() if one.is_integer() and abs(one) < 1e21:
                return int(one)
        return one

    return json.dumps(plain(value), indent=2, ensure_ascii=False)


FUNCTIONS: Functions = {
    "contains": _contains,
    "endsWith": _at_an_end(str.endswith),
    "format": _format,
    "fromJSON": _from_json,
    "join": _join,
    "startsWith": _at_an_end(str.startswith),
    "toJSON": _to_json,
}


def evaluate(text: str, contexts: Mapping[str, Any], functions: Functions) -> Any:
    return Parser(text, contexts, {**FUNCTIONS, **functions}).parse()


def check(text: str, names: Iterable[str], functions: Functions) -> None:
    """Unknown where GitHub refuses the expression for how it is written; nothing has a value yet."""
    parser = Parser(text, dict.fromkeys(names), {**FUNCTIONS, **functions})
    parser.skipping(True, parser.parse)


def parts(text: str) -> list[str]:
    """Words and expressions in turn, words first and last. A text in quotes in an expression may hold `}}`."""
    found, rest = [], text
    while "${{" in rest:
        words, _, rest = rest.partition("${{")
        match = re.match(r"((?:'(?:[^']|'')*'|(?!\}\}|').)*)\}\}", rest, re.DOTALL)
        if not match:
            raise Unknown(f"an expression has no end in {text!r}")
        found += [words, match[1]]
        rest = rest[match.end() :]
    return [*found, rest]


def fill(value: Any, contexts: Mapping[str, Any], functions: Functions) -> Any:
    """A value of a workflow with its `${{ }}` evaluated; one that is nothing else keeps its type."""
    if isinstance(value, Mapping):
        return {key: fill(one, contexts, functions) for key, one in value.items()}
    if isinstance(value, list):
        return [fill(one, contexts, functions) for one in value]
    if not isinstance(value, str):
        return value
    found = parts(value)
    if len(found) == 3 and not found[0].strip() and not found[2].strip():
        return evaluate(found[1], contexts, functions)
    return "".join(
        text_of(evaluate(part, contexts, functions)) if number % 2 else part for number, part in enumerate(found)
    )


def condition(value: Any) -> str:
    """The expression of an `if:`, which stands in `${{ }}` or not; without a status function in it, after success."""
    text = ("" if value is None else str(value)).strip()
    inner = re.fullmatch(r"\$\{\{(.*)\}\}", text, re.DOTALL)
    text = inner[1].strip() if inner else text
    if not text:
        return "success()"
    return text if has_status(text) else f"success() && ({text})"


def holds(value: Any, contexts: Mapping[str, Any], functions: Functions) -> bool:
    """An `if:`."""
    return truth(evaluate(condition(value), contexts, functions))
