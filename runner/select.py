"""Which cells of a matrix a command speaks of: its filters, a tier, a shard."""

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runner import filters as language
from runner.axes import AxisValues
from runner.errors import NothingSelected, UsageError
from runner.expand import by_default, cells
from runner.filters import Filter
from runner.matrix import Matrix
from runner.matrix_checks import MAX_CELLS
from runner.model import Cell
from runner.nearest import hint, nearest, quoted


@dataclass(frozen=True, slots=True)
class Selection:
    """The cells that pass every filter."""

    filters: tuple[Filter, ...]
    axes: AxisValues
    """What the filters leave of each axis; of an axis that none of them names, what a run takes by default."""

    @property
    def size(self) -> int:
        """How many cells there are at most: globs over ids leave fewer."""
        return math.prod(map(len, self.axes.values()))


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `index` of `total`, counted from 1."""

    index: int
    total: int


def parse(filters: Sequence[str], matrix: Matrix) -> Selection:
    """Read the filters of a command line; UsageError if malformed, NothingSelected if they name what is not there."""
    return _selection([language.parse(text, matrix.axes) for text in filters], matrix)


def _selection(filters: Sequence[Filter], matrix: Matrix) -> Selection:
    """Narrows each axis before they are combined: all combinations of all values can be billions."""
    defaults, axes = by_default(matrix), {}
    for axis, values in matrix.axes.items():
        asked = any(f.names(axis, defaults[axis], matrix.axes) for f in filters)
        axes[axis] = tuple(v for v in (values if asked else defaults[axis]) if all(f.lets(axis, v) for f in filters))
    return Selection(tuple(filters), axes)


def chosen(selection: Selection, matrix: Matrix) -> Iterator[Cell]:
    """The selected cells, in the order of the matrix; UsageError if they would be more than anyone can run."""
    if selection.size > MAX_CELLS:
        raise UsageError(
            f"{selection.size:,} cells are asked for, and more than {MAX_CELLS:,} are not run: ask for fewer values"
        )
    return (cell for cell in cells(matrix, selection.axes) if all(f.matches(cell.id) for f in selection.filters))


def tier(name: str, matrix: Matrix) -> tuple[str, ...]:
    """The filters of a tier."""
    if name not in matrix.tiers:
        there = hint(name, matrix.tiers) or "; the matrix has none"
        raise UsageError(f"unknown tier {quoted(name)}{there}")
    return matrix.tiers[name]


def parse_shard(text: str) -> Shard:
    """Read `I/N`."""
    found = re.fullmatch(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise UsageError(f"malformed shard {quoted(text)}: write I/N with I from 1 to N, as 2/4")
    return Shard(int(found[1]), int(found[2]))


def select(
    matrix: Matrix, *, filters: Sequence[str] = (), tier_name: str | None = None, shard: Shard | None = None
) -> tuple[Cell, ...]:
    """The cells asked for, in the order of the matrix; NothingSelected where there is none."""
    texts = [*(tier(tier_name, matrix) if tier_name is not None else ()), *filters]
    selection = parse(texts, matrix)
    found = tuple(chosen(selection, matrix))
    if not found:
        raise NothingSelected(_why_nothing(selection, matrix))
    if shard is None:
        return found
    part = _part(found, shard)
    if not part:
        raise NothingSelected(f"shard {shard.index}/{shard.total} is empty: only {len(found)} cells are selected")
    return part


def _part(found: tuple[Cell, ...], shard: Shard) -> tuple[Cell, ...]:
    """Every N-th cell in an order shuffled by hash: by plain counting, a shard could get all the cells of one load."""
    shuffled = sorted(found, key=lambda cell: hashlib.sha256(cell.id.encode()).digest())
    kept = {cell.id for cell in shuffled[shard.index - 1 :: shard.total]}
    return tuple(cell for cell in found if cell.id in kept)


def _why_nothing(selection: Selection, matrix: Matrix) -> str:
    """Which filter alone matches nothing, with the nearest id; else that only their combination does."""
    for one in selection.filters:
        alone = _selection([one], matrix)
        if next(chosen(alone, matrix), None) is not None:
            continue
        for glob in one.globs:
            if not any(c in glob for c in "*?["):
                near = nearest(glob, (cell.id for cell in cells(matrix)))
                return f"no cell is {quoted(glob)}" + (f", did you mean '{near[0]}'?" if near else "")
            if not glob.startswith("*"):
                wider = quoted("*" + glob.strip("*") + "*")
                return f"no cell matches {quoted(one.text)}: a glob is matched against whole ids, try {wider}"
        return f"no cell matches {quoted(one.text)} (see `runner list`)"
    return f"no cell matches all of {', '.join(quoted(one.text) for one in selection.filters)}"
