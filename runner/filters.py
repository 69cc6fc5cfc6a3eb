"""The language of `--filter` and of the tiers: words and comparisons, comma between them.

`sm90,sm100,flashinfer` means (sm90 or sm100) and flashinfer: or within an axis, and between axes. A word is a label,
another name of an arch (`b200`, `10.0a`), a whole id or a glob over ids. `arch!=sm90,arch!=sm100` means neither,
because the other reading would let every cell through. A value may be a glob: `vllm=0.3*`, `kv_dtype=*`.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from runner.axes import AXES, COUNTS, RELEASES, AxisValues, arch_alias, in_id, label
from runner.conditions import OPERATORS, ORDERED, Condition, of_releases
from runner.errors import NothingSelected, UsageError
from runner.model import AxisValue
from runner.nearest import hint, quoted

_TERM = re.compile(rf"(?P<axis>.*?)\s*(?P<op>{'|'.join(OPERATORS)})\s*(?P<value>.*)", re.DOTALL)
_HOW_TO = "write a label, a glob over ids, axis=value, axis!=value, axis=* or, for vllm, spec_k and chunk, axis>=number"


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """One `--filter`; a cell passes if on each axis it speaks of some wanted value and no unwanted one is there."""

    text: str
    wanted: Mapping[str, tuple[Condition, ...]]
    unwanted: tuple[tuple[str, Condition], ...]
    globs: tuple[str, ...]

    def lets(self, axis: str, value: AxisValue) -> bool:
        """Whether a cell with this value of this axis may pass."""
        wanted = self.wanted.get(axis)
        return (
            (wanted is None or any(c.holds(value) for c in wanted))
            and all(c.holds(value) for of, c in self.unwanted if of == axis)
            and (not self.globs or any(_may_have(glob, axis, value) for glob in self.globs))
        )

    def matches(self, cell_id: str) -> bool:
        """Whether the globs let this id through."""
        return not self.globs or any(fnmatchcase(cell_id, glob) for glob in self.globs)

    def names(self, axis: str, default: Collection[AxisValue], axes: AxisValues) -> bool:
        """Whether the filter asks for this axis, of which a run would take `default` otherwise.

        A glob over ids does if a word of it can only mean a value that is off by default: `*-kv_fp8` does, and a whole
        id; `*-k*` does not, since it means labels of another axis that are there anyway.
        """
        if axis in self.wanted or any(of == axis for of, _ in self.unwanted):
            return True
        off = [label(axis, value) for value in axes[axis] if value not in default]
        others = [label(of, value) for of, values in axes.items() if of != axis for value in values if in_id(of, value)]
        words = {word for glob in self.globs for word in glob.split("-")}
        return any(_any_match(off, word) and not _any_match(others, word) for word in words)


def parse(text: str, axes: AxisValues) -> Filter:
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
            raise NothingSelected(_unknown(word, axes))
    return Filter(
        text=text,
        wanted={axis: tuple(conditions) for axis, conditions in wanted.items()},
        unwanted=tuple(unwanted),
        globs=tuple(globs),
    )


def _unknown(word: str, axes: AxisValues) -> str:
    """What a word is that names nothing: a GPU of an arch that the matrix has not, or a label that nobody knows."""
    if (arch := arch_alias(word)) and arch != word:
        there = ", ".join(str(value) for value in axes.get("arch", ()))
        return f"{quoted(word)} is {arch}, an arch that this matrix has not: it has {there}"
    return f"unknown label {quoted(word)}{hint(word, _labels(axes))} (`runner list` prints all)"


def _may_have(glob: str, axis: str, value: AxisValue) -> bool:
    """Whether an id that matches may be of a cell with this value; a whole id has the labels of its values as words."""
    return any(c in glob for c in "*?[") or not in_id(axis, value) or label(axis, value) in glob.split("-")


def _any_match(labels: Iterable[str], glob: str) -> bool:
    return any(fnmatchcase(one, glob) for one in labels)


def _comparison(word: str, axis: str, op: str, text: str, axes: AxisValues) -> tuple[str, Condition]:
    if axis not in axes:
        raise UsageError(f"unknown axis {quoted(axis)} in filter {quoted(word)}{hint(axis, axes)}")
    if op in ORDERED:
        if axis == RELEASES:
            return axis, _of_releases(word, op, text, axes[axis])
        if axis not in COUNTS:
            raise UsageError(f"axis {quoted(axis)} has no order, in filter {quoted(word)}: use = or !=")
        if not re.fullmatch(r"[0-9]{1,12}", text):
            raise UsageError(f"{quoted(word)} does not compare with a whole number: {_HOW_TO}")
        return axis, Condition(op, (int(text),))
    if not text or _TERM.fullmatch(text):
        raise UsageError(f"malformed filter {quoted(word)}: {_HOW_TO}")
    names = _names(axis, axes[axis])
    values = {names[name]: None for name in (text, arch_alias(text) if axis == "arch" else None) if name in names}
    values = values or {value: None for name, value in names.items() if fnmatchcase(name, text)}
    if not values:
        raise NothingSelected(f"axis {quoted(axis)} has no value {quoted(text)}{hint(text, map(str, axes[axis]))}")
    return axis, Condition("!=" if op == "!=" else "=", tuple(values))


def _of_releases(word: str, op: str, text: str, values: tuple[AxisValue, ...]) -> Condition:
    found = of_releases(op, text, values)
    if found is None:
        raise UsageError(f"{quoted(word)} does not compare with a release such as 0.32.0: {_HOW_TO}")
    if not found.values:
        raise NothingSelected(f"no release of axis {quoted(RELEASES)} is {op}{text}")
    return found


def _named(word: str, axes: AxisValues) -> tuple[str, AxisValue] | None:
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


def _labels(axes: AxisValues) -> Iterator[str]:
    return (label(axis, value) for axis, values in axes.items() for value in values)
