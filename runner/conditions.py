"""What a selector of the matrix, or a filter of the command line, asks of the axes of a cell."""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runner.axes import AxisValues, release
from runner.model import AxisValue

ORDERED: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPERATORS = ("!=", ">=", "<=", "==", "=", ">", "<")
"""Longest first, so that a regular expression made of them reads `>=` as one."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One demand on the value of one axis; several values mean any of them (for `!=`: none of them)."""

    op: str
    values: tuple[AxisValue, ...]

    def holds(self, value: AxisValue) -> bool:
        if self.op in ORDERED:
            return any(ORDERED[self.op](value, bound) for bound in self.values)
        return (value in self.values) != (self.op == "!=")


@dataclass(frozen=True, slots=True)
class Selector:
    """Which cells a rule or a known issue speaks of: those that hold every condition."""

    conditions: Mapping[str, Condition]

    def matches(self, axes: Mapping[str, AxisValue]) -> bool:
        return all(condition.holds(axes[axis]) for axis, condition in self.conditions.items())


EVERYTHING = Selector({})


def of_releases(op: str, bound: str, values: Iterable[AxisValue]) -> Condition | None:
    """The releases among these values that `op` holds for, listed; None where the bound is no release.

    They are listed so that everything behind this reads one kind of condition, and so that a candidate, which is no
    release, is never compared.
    """
    limit = release(bound)
    if limit is None:
        return None
    numbers = {value: release(value) for value in values}
    return Condition("=", tuple(v for v, found in numbers.items() if found is not None and ORDERED[op](found, limit)))


def restricted(axes: AxisValues, conditions: Mapping[str, Condition]) -> dict[str, tuple[AxisValue, ...]]:
    """The axes with those of their values that hold; an axis without a condition keeps all."""
    return {
        axis: tuple(value for value in values if axis not in conditions or conditions[axis].holds(value))
        for axis, values in axes.items()
    }
