"""Entries narrowed to where a run shows that they hold, or taken out; never of a cell that was not seen. Pure."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from math import prod

from runner import regions, standing
from runner.axes import AxisValues
from runner.errors import UsageError
from runner.expand import by_default
from runner.known.entries import FREE, WANTED, Change, boxes, excluded, inside, region, reworded
from runner.matrix import KnownIssue, Matrix
from runner.model import AxisValue, CellResult
from runner.reports.text import count
from runner.standing import Place, Standing

LISTED = 6
"""Patterns that a note has of one kind of cells."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What is left of an entry, and how its cells stand; None where nothing refutes it, or the rest cannot be said."""

    left: tuple[KnownIssue, ...] | None
    standing: Standing
    problem: str = ""
    """Why the entry is left as it is although it is over somewhere."""


def prune(rows: Sequence[CellResult], chart: Matrix, *, today: date) -> Change:
    """Entries out of the cells where the run shows that they are over; out altogether where they have no other.

    What the run did not see stays known, also of an entry that has expired: to forget it is a person's decision.
    """
    rows = inside(rows, chart)
    fitted: dict[int, tuple[KnownIssue, ...]] = {}
    notes: list[str] = []
    for i, entry in enumerate(chart.known):
        name = f"known issue {i + 1} ({entry.issue})"
        if not matches_a_cell(entry, chart):
            fitted[i] = ()
            notes.append(f"{name} matches no cell: taken out")
            continue
        found = narrow(entry, rows, chart)
        if found.left is not None:
            fitted[i] = found.left
        elif (same := replace(entry, selector=reworded(entry, region(entry, chart), chart))) != entry:
            fitted[i] = (same,)
            notes.append(f"{name} names values that no axis has: they are taken out, no cell is")
        notes += told(name, found)
        if isinstance(entry.until, date) and today > entry.until and found.left != ():
            notes.append(f"{name} has expired on {entry.until}: {standing.summary(found.standing)}: it is left there")
    return Change(fitted, notes=tuple(notes))


def narrow(entry: KnownIssue, rows: Sequence[CellResult], chart: Matrix) -> Narrowed:
    """What is left of an entry: all of its cells but those in which the run shows that it is over.

    A cell in which only some of its buffers hold keeps the others.
    """
    stands = standing.of(entry, rows, chart)
    spoken_of = region(entry, chart)
    colours: dict[Place, Hashable] = {_place(axes, chart): FREE for axes in excluded(rows, chart)}
    partly: dict[Place, tuple[str, ...]] = {}
    for row in rows:
        if (place := _place(row.axes, chart)) in stands.over:
            colours[place] = ()
        elif place in stands.partly:
            kept = {*(standing.kept(entry, row) or ()), *partly.get(place, ())}
            partly[place] = tuple(buffer for buffer in entry.buffer if buffer in kept)
    partly = {place: buffers for place, buffers in partly.items() if buffers != entry.buffer}
    if not stands.over and not partly:
        return Narrowed(None, stands)
    colours = {place: colour for place, colour in (colours | partly).items() if _within(place, spoken_of)}
    try:
        left = [
            replace(entry, selector=reworded(entry, axes, chart), buffer=entry.buffer if buffers is None else buffers)
            for buffers in dict.fromkeys([None, *partly.values()])
            for axes in boxes(spoken_of, colours, buffers)
        ]
    except UsageError as error:
        return Narrowed(None, stands, str(error))
    return Narrowed(tuple(one for one in left if _counts_somewhere(one, chart)), stands)


def told(name: str, found: Narrowed) -> list[str]:
    """The change of one entry in words: how many cells it leaves and which, and which stay as they were."""
    stands = found.standing
    if found.problem:
        return [f"{name} is over in {count(len(stands.over), 'cell')} and left as it is: {found.problem}"]
    if found.left is None:
        return []
    what = {0: "taken out", 1: "narrowed"}.get(len(found.left), f"narrowed, in {len(found.left)} entries")
    kinds = {
        "over": stands.over,
        "over in a part of its buffers": stands.partly,
        "still so": stands.still - stands.partly,
        "undecided": stands.undecided - stands.partly,
    }
    lines = [f"{name}: {what}"]
    lines += [f"  {len(places):,} {kind}: {_seen(places, stands)}" for kind, places in kinds.items() if places]
    if stands.unseen != 0:
        unseen = "very many" if stands.unseen is None else f"{stands.unseen:,}"
        lines.append(f"  {unseen} not seen, known as before: {_unseen(stands)}")
    return ["\n".join(lines)]


def _seen(places: frozenset[Place], stands: Standing) -> str:
    """Some of the cells that were seen, in few patterns; what a run takes by default is not said."""
    colours = dict.fromkeys(stands.seen, "other") | dict.fromkeys(places, WANTED)
    usual = by_default(stands.chart)
    unsaid = {a: {values, tuple(v for v in values if v in usual[a])} for a, values in stands.region.items()}
    return _patterns(stands.region, colours, WANTED, unsaid, free=(None,)) or "all that were seen"


def _unseen(stands: Standing) -> str:
    colours: dict[Place, Hashable] = dict.fromkeys(stands.seen, "seen")
    unsaid = {axis: {values} for axis, values in stands.region.items()}
    return _patterns(stands.region, colours, None, unsaid, free=()) or "every one"


def _patterns(
    axes: AxisValues,
    colours: Mapping[Place, Hashable],
    wanted: Hashable,
    unsaid: Mapping[str, set[tuple[AxisValue, ...]]],
    free: Sequence[Hashable],
) -> str:
    try:
        found = sorted(boxes(axes, colours, wanted, free=free), key=lambda box: -prod(map(len, box.values())))
    except UsageError:
        return "in too many patterns to list"
    words = [
        " ".join(f"{axis}={','.join(map(str, values))}" for axis, values in box.items() if values not in unsaid[axis])
        for box in found
    ]
    return "; ".join(words[:LISTED]) + (f"; and {len(words) - LISTED} patterns more" if words[LISTED:] else "")


def _place(axes: Mapping[str, AxisValue], chart: Matrix) -> Place:
    return tuple(axes[axis] for axis in chart.axes)


def _within(place: Place, axes: AxisValues) -> bool:
    return all(value in values for value, values in zip(place, axes.values(), strict=True))


def _counts_somewhere(entry: KnownIssue, chart: Matrix) -> bool:
    """Whether there is a cell that the entry matches, and a release in which it has not ended."""
    axes = region(entry, chart)
    return matches_a_cell(entry, chart) and not entry.after.issuperset(axes["vllm"])


def matches_a_cell(entry: KnownIssue, chart: Matrix) -> bool:
    """Whether there is a cell that the entry speaks of and no rule excludes."""
    return next(regions.left(region(entry, chart), [rule.selector for rule in chart.rules]), None) is not None
