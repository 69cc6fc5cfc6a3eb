"""A matrix into its cells: lazy, ordered, and the same every time."""

import itertools
from collections.abc import Iterator

from runner.axes import label
from runner.matrix import Matrix
from runner.model import Cell


def cells(matrix: Matrix) -> Iterator[Cell]:
    """Every combination of one value per axis, the last axis changing fastest; excluded ones say why."""
    names = tuple(matrix.axes)
    for values in itertools.product(*matrix.axes.values()):
        axes = dict(zip(names, values, strict=True))
        labels = {axis: label(axis, value) for axis, value in axes.items()}
        yield Cell(
            id="-".join(labels.values()),
            axes=axes,
            labels=labels,
            load=matrix.loads[str(axes["load"])],
            unsupported=next((rule.because for rule in matrix.rules if rule.selector.matches(axes)), ""),
        )
