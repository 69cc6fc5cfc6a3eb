"""What a selector of the matrix, or a filter of the command line, asks of the axes of a cell."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runner.axes import AxisValues
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


def restricted(axes: AxisValues, conditions: Mapping[str, Condition]) -> dict[str, tuple[AxisValue, ...]]:
    """The axes with those of their values that hold; an axis without a condition keeps all."""
    return {
        axis: tuple(value for value in values if axis not in conditions or conditions[axis].holds(value))
        for axis, values in axes.items()
    }
