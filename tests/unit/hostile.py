"""Text that means something to a browser, a terminal or a parser, and every place of a result that text can be in."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from runner.model import CellResult

TEXTS = {
    "html": '<img src=x onerror=evil()><script>evil()</script><a href="javascript:evil()">',
    "markdown": "x](https://evil.example) ![evil](https://evil.example/x.png) @all #1 ` `` ```\n# evil\n| evil |\n<b>",
    "xml": '\'">]]><testcase name="evil"/><![CDATA[ &evil; <!-- ',
    "terminal": "\x1b[2J\x1b]0;evil\x07\x9b31m\r\x08[bold]evil[/bold] :smile:",
    "bidi": "\u202eevil\u2066\u200b\ufeff\u2028\u2029",
    "nul": "evil\x00\ud800",
    "prometheus": 'evil"} 1\nevil_metric{x="1"} 1\n# TYPE evil counter\nevil 1 \\',
    "megabyte": "evil " * 200_000,
}
STEERING = frozenset("\x00\x07\x08\x1b\r\x9b\u202e\u2066\u200b\ufeff\u2028\u2029\ud800")
"""Characters that must reach no reader as they are."""

KEY, VALUE, ITEM = "(key)", "(value)", "(item)"
Path = tuple[str, ...]


def places(kind: Any = CellResult, path: Path = ()) -> Iterator[Path]:
    """Every place of text in a type, found by looking at it: a new field is there by itself."""
    if kind in (str, Any) or (get_origin(kind) in (Union, UnionType) and str in get_args(kind)):
        yield path
    elif is_dataclass(kind):
        for name, hint in get_type_hints(kind).items():
            yield from places(hint, (*path, name))
    elif get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from places(one, path)
    elif get_origin(kind) is Mapping:
        key, value = get_args(kind)
        yield from places(key, (*path, KEY))
        yield from places(value, (*path, VALUE))
    elif get_origin(kind) is tuple:
        yield from places(get_args(kind)[0], (*path, ITEM))


def put(value: Any, path: Path, text: str) -> Any:
    """The same with this text in that place; an item of all tuples and a value of all mappings on the way."""
    if value is None and path:  # of a union, and it is not there
        return None
    if not path:
        return text
    step, *rest = path
    if step == KEY:
        return {**value, text: next(iter(value.values()), "")}
    if step == VALUE:
        return {key: put(one, tuple(rest), text) for key, one in value.items()}
    if step == ITEM:
        return tuple(put(one, tuple(rest), text) for one in value)
    assert step in {field.name for field in fields(value)}
    return replace(value, **{step: put(getattr(value, step), tuple(rest), text)})
