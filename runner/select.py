"""Which cells of a matrix a command speaks of: its filters, a tier, a shard."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from runner import filters as language
from runner.errors import NothingSelected, UsageError
from runner.expand import cells
from runner.filters import Filter
from runner.matrix import Matrix
from runner.model import Cell
from runner.nearest import hint, nearest, quoted


@dataclass(frozen=True, slots=True)
class Selection:
    """The cells that pass every filter."""

    filters: tuple[Filter, ...]

    def __call__(self, cell: Cell) -> bool:
        return all(f(cell) for f in self.filters)


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `index` of `total`, counted from 1."""

    index: int
    total: int


def parse(filters: Sequence[str], matrix: Matrix) -> Selection:
    """Read the filters of a command line; UsageError if malformed, NothingSelected if they name what is not there."""
    return Selection(tuple(language.parse(text, matrix.axes) for text in filters))


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
    found = tuple(cell for cell in cells(matrix) if selection(cell))
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
    everything = list(cells(matrix))
    for one in selection.filters:
        if any(one(cell) for cell in everything):
            continue
        for glob in one.globs:
            if not any(c in glob for c in "*?["):
                near = nearest(glob, (cell.id for cell in everything))
                return f"no cell is {quoted(glob)}" + (f", did you mean '{near[0]}'?" if near else "")
            if not glob.startswith("*"):
                wider = quoted("*" + glob.strip("*") + "*")
                return f"no cell matches {quoted(one.text)}: a glob is matched against whole ids, try {wider}"
        return f"no cell matches {quoted(one.text)} (see `runner list`)"
    return f"no cell matches all of {', '.join(quoted(one.text) for one in selection.filters)}"
