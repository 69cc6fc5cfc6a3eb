"""The language of `--filter` and of the tiers: words and comparisons, comma between them.

`sm90,sm100,flashinfer` means (sm90 or sm100) and flashinfer: or within an axis, and between axes. A word is a label,
another name of an arch (`b200`, `10.0a`), a whole id or a glob over ids. `arch!=sm90,arch!=sm100` means neither,
because the other reading would let every cell through.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from runner.axes import AXES, COUNTS, arch_alias, label
from runner.conditions import OPERATORS, ORDERED, Condition
from runner.errors import NothingSelected, UsageError
from runner.model import AxisValue, Cell
from runner.nearest import hint, quoted

_TERM = re.compile(rf"(?P<axis>.*?)\s*(?P<op>{'|'.join(OPERATORS)})\s*(?P<value>.*)", re.DOTALL)
_HOW_TO = "write a label, a glob over ids, axis=value, axis!=value or, for spec_k and chunk, axis>=number"


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """One `--filter`; a cell passes if on each axis it speaks of some wanted value and no unwanted one is there."""

    text: str
    wanted: Mapping[str, tuple[Condition, ...]]
    unwanted: tuple[tuple[str, Condition], ...]
    globs: tuple[str, ...]

    def __call__(self, cell: Cell) -> bool:
        return (
            all(any(c.holds(cell.axes[axis]) for c in conditions) for axis, conditions in self.wanted.items())
            and all(c.holds(cell.axes[axis]) for axis, c in self.unwanted)
            and (not self.globs or any(fnmatchcase(cell.id, glob) for glob in self.globs))
        )


def parse(text: str, axes: Mapping[str, tuple[AxisValue, ...]]) -> Filter:
    """Read one filter; UsageError where it is malformed, NothingSelected where it names what the matrix has not."""
    wanted: dict[str, list[Condition]] = {}
    unwanted: list[tuple[str, Condition]] = []
    globs: list[str] = []
    for word in (w.strip() for w in text.lower().split(",")):
        if not word:
            raise UsageError(f"filter {quoted(text)} has an empty word: {_HOW_TO}")
        if (term := _TERM.fullmatch(word)) is not None:
            axis, condition = _comparison(word, term["axis"], term["op"], term["value"], axes)
            if condition.op == "!=":
                unwanted.append((axis, condition))
            else:
                wanted.setdefault(axis, []).append(condition)
        elif (named := _named(word, axes)) is not None:
            wanted.setdefault(named[0], []).append(Condition("=", (named[1],)))
        elif "-" in word or any(c in word for c in "*?["):
            globs.append(word)
        elif word in AXES:
            raise UsageError(f"{quoted(word)} in a filter is an axis: {_HOW_TO} (quote < and > from the shell)")
        else:
            raise NothingSelected(f"no label is {quoted(word)}{hint(word, _labels(axes))} (see `runner list`)")
    return Filter(
        text=text,
        wanted={axis: tuple(conditions) for axis, conditions in wanted.items()},
        unwanted=tuple(unwanted),
        globs=tuple(globs),
    )


def _comparison(
    word: str, axis: str, op: str, text: str, axes: Mapping[str, tuple[AxisValue, ...]]
) -> tuple[str, Condition]:
    if axis not in axes:
        raise UsageError(f"unknown axis {quoted(axis)} in filter {quoted(word)}{hint(axis, axes)}")
    if op in ORDERED:
        if axis not in COUNTS:
            raise UsageError(f"axis {quoted(axis)} has no order, in filter {quoted(word)}: use = or !=")
        if not re.fullmatch(r"[0-9]{1,12}", text):
            raise UsageError(f"{quoted(word)} does not compare with a whole number: {_HOW_TO}")
        return axis, Condition(op, (int(text),))
    if not text or _TERM.fullmatch(text):
        raise UsageError(f"malformed filter {quoted(word)}: {_HOW_TO}")
    names = _names(axis, axes[axis])
    if (value := names.get(text, names.get(arch_alias(text) or "") if axis == "arch" else None)) is None:
        raise NothingSelected(f"axis {quoted(axis)} has no value {quoted(text)}{hint(text, map(str, axes[axis]))}")
    return axis, Condition("!=" if op == "!=" else "=", (value,))


def _named(word: str, axes: Mapping[str, tuple[AxisValue, ...]]) -> tuple[str, AxisValue] | None:
    """The axis and value that a bare word names; labels come before other names."""
    for name in (word, arch_alias(word)):
        for axis, values in axes.items():
            for value in values:
                if label(axis, value) == name:
                    return axis, value
    return None


def _names(axis: str, values: tuple[AxisValue, ...]) -> dict[str, AxisValue]:
    """What may stand after `axis=`: `on` or `hybrid_on`, `3` or `k3`."""
    return {label(axis, v): v for v in values} | {str(v): v for v in values}


def _labels(axes: Mapping[str, tuple[AxisValue, ...]]) -> Iterator[str]:
    return (label(axis, value) for axis, values in axes.items() for value in values)
