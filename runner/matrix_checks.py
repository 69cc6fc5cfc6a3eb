"""What must hold between the parts of a matrix; tells every mistake, also in a file whose shape is wrong elsewhere."""

import math
import re
from datetime import date
from typing import Any

from runner import filters, regions
from runner.axes import AXES, COUNTS, NEUTRAL, RELEASES, AxisValues, label
from runner.conditions import OPERATORS, ORDERED, Condition, Selector, of_releases, restricted
from runner.errors import RunnerError
from runner.matrix_document import PRODUCT_STATES, on_off
from runner.matrix_messages import END, place_name
from runner.model import AxisValue
from runner.nearest import hint, quoted
from runner.yaml_source import Loc, Source, kind

MAX_CELLS = 1_000_000
_COMPARISON = re.compile(rf"({'|'.join(OPERATORS)})\s*(.*)", re.DOTALL)


def axes_of(source: Source) -> AxisValues:
    """The axes in file order, each with the values that are usable; then those that the file may leave out and does."""
    found: dict[str, tuple[Any, ...]] = {}
    for axis in source.mapping("axes"):
        if axis in AXES:
            values = [(i, on_off(v) if axis == "hybrid" else v) for i, v in enumerate(source.items("axes", axis))]
            found[axis] = tuple(v for i, v in values if not source.is_broken(("axes", axis, i)))
    return found | {axis: (value,) for axis, value in NEUTRAL.items() if axis not in found}


def defaults_of(source: Source, axes: AxisValues) -> Selector:
    """What a run takes of the axes that it does not ask for; the same language as that of a rule."""
    conditions = {}
    for axis, raw in source.mapping("defaults").items():
        at = ("defaults", axis)
        if axis not in axes or source.is_broken(("axes", axis)) or source.is_broken(at):
            continue
        condition = _condition(source, at, axis, raw, axes[axis])
        if source.is_broken(at):
            continue
        if not any(condition.holds(value) for value in axes[axis]):
            source.mistake(at, f"no value of axis {quoted(axis)} is {quoted(raw)}: a run would take nothing by default")
            continue
        conditions[axis] = condition
    return Selector(conditions)


def check(source: Source, axes: AxisValues, defaults: Selector) -> None:
    """Note every mistake in how the parts fit; selectors are checked where they are read."""
    _values(source, axes)
    size = math.prod(len(values) for values in restricted(axes, defaults.conditions).values())
    if size > MAX_CELLS:
        source.mistake(("axes",), f"the axes make {size:,} cells; more than {MAX_CELLS:,} are not run", usable=True)
    _references(source, axes)
    for i, entry in enumerate(source.items("known")):
        if isinstance(entry, dict) and entry.get("state") in PRODUCT_STATES - {"overflow"}:
            for key in entry.keys() & {"buffer", "how"}:
                where = place_name(("known", i, key))
                source.mistake(("known", i, key), f"{where} goes only with state overflow", key=True)
    for tier in source.mapping("tiers"):
        for i, text in enumerate(source.items("tiers", tier)):
            at = ("tiers", tier, i)
            if isinstance(text, str) and text and not source.is_broken(("axes",)):
                try:
                    filters.parse(text, axes)
                except RunnerError as error:
                    source.mistake(at, f"{place_name(at)}: {error}")


def _values(source: Source, axes: AxisValues) -> None:
    """A value is listed once, and no two axes share a label: a bare word of a filter must be unambiguous."""
    labels: dict[str, str] = {}
    for axis, values in axes.items():
        for i, value in enumerate(source.items("axes", axis)):
            at, value = ("axes", axis, i), on_off(value) if axis == "hybrid" else value
            if source.is_broken(at) or value not in values:
                continue
            name = label(axis, value)
            if labels.get(name) == axis:
                source.mistake(at, f"value {quoted(value)} is listed twice in axis {quoted(axis)}", usable=True)
            elif name in labels:
                other = labels[name]
                message = f"{quoted(name)} is also a label of axis {quoted(other)}: a filter could not tell them apart"
                source.mistake(at, message, usable=True)
            labels.setdefault(name, axis)


def _references(source: Source, axes: AxisValues) -> None:
    """Every value of the axes `load` and `vllm` is defined."""
    for axis, section, remedy in (("load", "loads", "define it"), ("vllm", "environments", "add one")):
        defined = source.mapping(section)
        for i, value in enumerate(source.items("axes", axis)):
            if value not in axes.get(axis, ()) or value in defined:
                continue
            if section not in source.mapping() or source.broken.intersection({(), (section,)}):
                continue
            what = f"unknown load {quoted(value)}" if axis == "load" else f"no environment for vllm {quoted(value)}"
            source.mistake(("axes", axis, i), f"{what}: {remedy} under {section!r}{hint(value, defined)}", usable=True)


def selectors(source: Source, axes: AxisValues, section: str, field: str, *, idle: bool = False) -> list[Selector]:
    """The selectors of all rules or all known issues, in order; mistakes are noted in the source.

    `idle` lets values stand that an axis does not have (any more).
    """
    found = []
    for i, _ in enumerate(source.items(section)):
        at = (section, i, field)
        wanted = source.mapping(*at)
        if not wanted and at in source.places and not source.is_broken(at):
            source.mistake(at, f"{place_name(at)} names no axis, so it would mean every cell")
        conditions = {}
        for axis, raw in wanted.items():
            if axis in axes and not source.is_broken(("axes", axis)) and not source.is_broken((*at, axis)):
                conditions[axis] = _condition(source, (*at, axis), axis, raw, axes[axis], idle=idle)
        found.append(Selector(conditions))
    return found


def speaks_of_cells(
    source: Source, axes: AxisValues, rules: list[Selector], entries: list[Selector], section: str
) -> None:
    """An entry of this section that matches no cell is a mistake: it changes nothing and will never be seen again."""
    if source.is_broken(("axes",)):
        return
    usable = {i + 1: rule for i, rule in enumerate(rules) if not source.is_broken(("rules", i))}
    for i, selector in enumerate(entries):
        at: Loc = (section, i, "where")
        if source.is_broken(at):
            continue
        region = regions.of(selector, axes)
        if empty := [axis for axis, values in region.items() if not values]:
            wanted = quoted(source.mapping(*at)[empty[0]])
            message = f"{place_name(at[:2])} matches no cell: no value of axis {quoted(empty[0])} is {wanted}"
            source.mistake((*at, empty[0]), message)
        elif next(regions.left(region, list(usable.values())), None) is None:
            by = [number for number, rule in usable.items() if next(regions.left(region, [rule]), None) is None]
            name = f"rule {by[0]} excludes" if by else "rules exclude"
            source.mistake(at, f"{place_name(at[:2])} matches no cell: {name} all that it speaks of")


def after(source: Source, axes: AxisValues, known: list[Selector]) -> list[frozenset[AxisValue]]:
    """For each known issue whose `until` is a release, the releases behind it on the axis; for others none."""
    found: list[frozenset[AxisValue]] = []
    releases = axes.get("vllm", ())
    for i, entry in enumerate(source.items("known")):
        at, until = ("known", i, "until"), entry.get("until") if isinstance(entry, dict) else None
        later: frozenset[AxisValue] = frozenset()
        if isinstance(until, str) and not _is_date(until) and not source.is_broken(at):
            if until in releases:
                later = frozenset(releases[releases.index(until) + 1 :])
                spoken_of = regions.of(known[i], axes)["vllm"]
                if spoken_of and later.issuperset(spoken_of):
                    source.mistake(at, f"{place_name(at)} is {until}, before all releases that the entry speaks of")
            elif not source.is_broken(("axes", "vllm")):
                source.mistake(at, f"{place_name(at)} must be {END}, not {quoted(until)}{hint(until, releases)}")
        found.append(later)
    return found


def _is_date(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def _condition(
    source: Source, at: Loc, axis: str, raw: Any, values: tuple[AxisValue, ...], *, idle: bool = False
) -> Condition:
    if isinstance(raw, list):
        if not raw:
            source.mistake(at, f"axis {quoted(axis)} has an empty list in {place_name(at[:2])}")
        return Condition(
            "=", tuple(_value(source, (*at, i), axis, item, values, idle=idle) for i, item in enumerate(raw))
        )
    comparison = _COMPARISON.fullmatch(raw) if isinstance(raw, str) else None
    if comparison is None:
        return Condition("=", (_value(source, at, axis, raw, values, idle=idle),))
    op, text = comparison.groups()
    op = "=" if op == "==" else op
    if op in ORDERED and axis == RELEASES:
        found = of_releases(op, text, values)
        if found is None:
            source.mistake(at, f"{quoted(raw)} in {place_name(at[:2])} does not compare with a release such as 0.32.0")
        elif not found.values and not idle:
            source.mistake(at, f"no release of axis {quoted(axis)} is {quoted(raw)}, in {place_name(at[:2])}")
        return found or Condition("=", ())
    if op in ORDERED and axis not in COUNTS:
        source.mistake(at, f"axis {quoted(axis)} has no order: compare it with != or list its values")
    number = int(text) if axis in COUNTS and re.fullmatch(r"[0-9]{1,12}", text) else text
    if op in ORDERED:
        if axis in COUNTS and isinstance(number, str):
            source.mistake(at, f"{quoted(raw)} in {place_name(at[:2])} does not compare with a whole number")
        return Condition(op, (number,))
    return Condition(op, (_value(source, at, axis, number, values, idle=idle),))


def _value(
    source: Source, at: Loc, axis: str, raw: Any, values: tuple[AxisValue, ...], *, idle: bool = False
) -> AxisValue:
    """One value that a selector names, which must be one of the axis."""
    where = place_name(at[:2])
    value = on_off(raw) if axis == "hybrid" else raw
    if isinstance(value, bool) or not isinstance(value, str | int):
        remedy = f': quote it, "{source.written[at]}"' if source.written.get(at) and axis not in COUNTS else ""
        shown = f"{source.written[at]}, read as {kind(raw)}," if source.written.get(at) else kind(raw)
        source.mistake(at, f"{shown} is no value of axis {quoted(axis)} in {where}{remedy}")
    elif value not in values:
        if isinstance(value, int) and axis not in COUNTS and not any(isinstance(v, int) for v in values):
            source.mistake(at, f'a value of axis {quoted(axis)} in {where} is a string: quote it, "{value}"')
        elif isinstance(value, str) and axis in COUNTS and value in map(str, values):
            source.mistake(at, f"axis {quoted(axis)} takes whole numbers: write {value} without quotes")
        elif idle:
            return value
        else:
            source.mistake(at, f"axis {quoted(axis)} has no value {quoted(value)}, in {where}{hint(value, values)}")
        return ""
    return value if isinstance(value, str | int) else ""
