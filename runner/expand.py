"""A matrix into its cells: lazy, ordered, and the same every time."""

import itertools
from collections.abc import Iterator

from runner.axes import AxisValues, in_id, label
from runner.conditions import restricted
from runner.matrix import Matrix
from runner.model import Cell


def by_default(matrix: Matrix) -> AxisValues:
    """The values that a run takes of each axis unless it asks for others."""
    return restricted(matrix.axes, matrix.defaults.conditions)


def cells(matrix: Matrix, axes: AxisValues | None = None) -> Iterator[Cell]:
    """Every combination of one value per axis, the last axis changing fastest; excluded ones say why.

    `axes` has the values to combine, by default those of `by_default`. All of a matrix with axes that are off by
    default are far more than anyone runs.
    """
    axes = by_default(matrix) if axes is None else axes
    names = tuple(axes)
    labels_of = {axis: {value: label(axis, value) for value in values} for axis, values in axes.items()}
    for values in itertools.product(*axes.values()):
        of_cell = dict(zip(names, values, strict=True))
        labels = {axis: labels_of[axis][value] for axis, value in of_cell.items()}
        yield Cell(
            id="-".join(labels[axis] for axis, value in of_cell.items() if in_id(axis, value)),
            axes=of_cell,
            labels=labels,
            load=matrix.loads[str(of_cell["load"])],
            unsupported=next((rule.because for rule in matrix.rules if rule.selector.matches(of_cell)), ""),
        )
