"""How a known issue stands by a run: in which of its cells it is over, still so, or was not seen. Pure."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property

from runner import regions
from runner.axes import AxisValues
from runner.conditions import Condition
from runner.expand import by_default
from runner.expectations import gone, refuted, shown
from runner.matrix import KnownIssue, Matrix
from runner.model import AxisValue, CellResult, Verdict

Place = tuple[AxisValue, ...]
"""A cell by its values, in the order of the axes of the matrix."""


@dataclass(frozen=True)
class Standing:
    """The cells of one known issue that a run has results of; a release behind its last one has none of them."""

    chart: Matrix
    region: AxisValues
    """The cells that the entry speaks of."""
    over: frozenset[Place]
    """It is over: these pass, or the buffers that the entry names hold."""
    still: frozenset[Place]
    """It is still so."""
    undecided: frozenset[Place]
    """What they show says nothing of it: they were refused, or have another trouble."""
    partly: frozenset[Place]
    """Of the last two, the ones in which some of the buffers that the entry names hold, and others do not."""

    @property
    def seen(self) -> frozenset[Place]:
        return self.over | self.still | self.undecided

    @cached_property
    def cells(self) -> int | None:
        """How many cells there are that no rule excludes; None where they are too many to count."""
        return self._size(self.region)

    @property
    def unseen(self) -> int | None:
        return None if self.cells is None else self.cells - len(self.seen)

    @property
    def is_over(self) -> bool:
        """Whether it is over in every cell."""
        return bool(self.over) and len(self.over) == self.cells

    def unseen_of(self, axes: AxisValues) -> int | None:
        """How many cells with these values, which are some of the region's, have no result."""
        there = self._size(axes)
        inside = sum(all(v in axes[a] for a, v in zip(axes, place, strict=True)) for place in self.seen)
        return None if there is None else there - inside

    def _size(self, axes: AxisValues) -> int | None:
        return regions.size(regions.left(axes, [rule.selector for rule in self.chart.rules]))


def of(entry: KnownIssue, rows: Iterable[CellResult], chart: Matrix) -> Standing:
    """What these results, of this matrix or another one, say of an entry of this one.

    A cell with two results is over only by both.
    """
    region = regions.of(entry.selector, chart.axes)
    region = {**region, "vllm": tuple(v for v in region["vllm"] if v not in entry.after)}
    over: set[Place] = set()
    still: set[Place] = set()
    partly: set[Place] = set()
    undecided: set[Place] = set()
    whole: set[Place] = set()
    for row in rows:
        if not all(row.axes.get(axis) in values for axis, values in region.items()):
            continue
        if any(rule.selector.matches(row.axes) for rule in chart.rules):
            continue
        place = tuple(row.axes[axis] for axis in chart.axes)
        left = kept(entry, row)
        (still if shown(entry, row) else over if left == () else undecided).add(place)
        if left != ():
            (partly if left else whole).add(place)
    sets = (over - still - undecided, still, undecided - still, partly - whole)
    return Standing(chart, region, *map(frozenset, sets))


def kept(entry: KnownIssue, row: CellResult) -> tuple[str, ...] | None:
    """The buffers of an entry that a cell leaves in it where it refutes the others; None where it refutes nothing."""
    if not refuted(entry, row):
        return None
    over = gone(entry, row)
    return tuple(buffer for buffer in entry.buffer if buffer not in over)


def told(rows: Sequence[CellResult], known: Sequence[KnownIssue], chart: Matrix, today: date) -> tuple[CellResult, ...]:
    """The results of a run, those that surprise by passing with what to do about each entry that they refute."""
    words: dict[int, str] = {}

    def of_entry(number: int) -> str:
        if number not in words:
            words[number] = advice(number + 1, known[number], of(known[number], rows, chart))
        return words[number]

    return tuple(
        replace(row, reason="\n".join([f"{row.reason}.", *map(of_entry, _refuted(row, known, today))]))
        if row.verdict is Verdict.XPASS
        else row
        for row in rows
    )


def _refuted(row: CellResult, known: Sequence[KnownIssue], today: date) -> Iterator[int]:
    for number, entry in enumerate(known):
        if entry.selector.matches(row.axes) and not entry.has_expired(row.axes, today) and refuted(entry, row):
            yield number


def advice(number: int, entry: KnownIssue, standing: Standing) -> str:
    """What to do about an entry that a run refutes: out with it where no cell is left, else no more than was seen."""
    cells = standing.cells
    if standing.is_over:
        of_all = "its one cell" if cells == 1 else f"all of its {cells:,} cells"
        return f"Known issue {number} is over in {of_all}: take the entry out (`runner known prune RUN --write`)."
    of_all = "very many" if cells is None else f"{cells:,}"
    found = f"Known issue {number} is over in {len(standing.over):,} of its {of_all} cells: {summary(standing)}."
    prune = "`runner known prune RUN` takes exactly the cells in which it is over out of the entry."
    return "\n".join([found, prune, *_how_to_see(entry, standing)])


def summary(standing: Standing) -> str:
    """`4 still so, 1 undecided, 139 not seen`: the cells in which it is not known to be over."""
    parts = {
        "still so": len(standing.still - standing.partly),
        "over in a part of its buffers": len(standing.partly),
        "undecided": len(standing.undecided - standing.partly),
    }
    words = [f"{number:,} {what}" for what, number in parts.items() if number]
    if standing.unseen != 0:
        words.append("all others not seen" if standing.unseen is None else f"{standing.unseen:,} not seen")
    return ", ".join(words)


SOME = 20_000
"""Cells that a person may be asked to run."""
SHORT = 300
"""Characters of a command that reports show whole."""


def _how_to_see(entry: KnownIssue, standing: Standing) -> Iterator[str]:
    """The command that runs cells of the entry which were not seen: those by default, or if they were, all others."""
    usual = by_default(standing.chart)
    named = set(entry.selector.conditions)
    for off in ([], [axis for axis, values in standing.region.items() if axis not in named and values != usual[axis]]):
        taken = {
            axis: tuple(value for value in values if axis in named or axis in off or value in usual[axis])
            for axis, values in standing.region.items()
        }
        if unseen := standing.unseen_of(taken):
            words = [*map(_filter, _shown(entry, standing)), *(f"{axis}=*" for axis in off)]
            command = " ".join(["runner", *(f"--filter {shlex.quote(word)}" for word in words)])
            if unseen <= SOME and len(command) <= SHORT:
                yield f"`{command}` runs {unseen:,} of those that were not seen."
            return


def _shown(entry: KnownIssue, standing: Standing) -> Iterator[tuple[str, Condition]]:
    for axis, condition in entry.selector.conditions.items():
        one = len(condition.values) == 1 and not entry.after
        yield axis, condition if one else Condition("=", tuple(standing.region[axis]))


def _filter(asked: tuple[str, Condition]) -> str:
    """As `--filter` takes it: `sm80` and `sm90` of one axis are `arch=sm80,arch=sm90`."""
    axis, condition = asked
    return ",".join(f"{axis}{condition.op}{value}" for value in condition.values)
