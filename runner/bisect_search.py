"""Finding where a line of results turns, when some of its points cannot be judged. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Word(StrEnum):
    """What a point of the line is found to be."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
    """It did not run, or ended so that it says neither."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Positions on the line: the last good one, the first bad one, and those between that could not be judged."""

    good: int
    bad: int
    unknown: tuple[int, ...]


def search(points: int, probe: Callable[[int], Word]) -> Turn:
    """Where a line that is good at its first point and bad at its last turns; those two are not probed.

    Halves what is left, and around a point that says nothing takes the nearest other one. Where the line turns several
    times, one of the turns is found.
    """
    good, bad = 0, points - 1
    unknown: set[int] = set()
    while left := [point for point in range(good + 1, bad) if point not in unknown]:
        point = min(left, key=lambda point: (abs(2 * point - good - bad), point))
        match probe(point):
            case Word.GOOD:
                good = point
            case Word.BAD:
                bad = point
            case Word.UNKNOWN:
                unknown.add(point)
    return Turn(good, bad, tuple(range(good + 1, bad)))
