"""The line that a bisect goes along: releases of the matrix, or versions of one package over a release."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import expand, matrix, packages
from runner.errors import UsageError
from runner.machine import choose, planned
from runner.model import Cell, Evidence
from runner.options import RunOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One place on the line: its name, and the matrix in which the cell is judged there."""

    name: str
    file: Path
    chart: matrix.Matrix
    cell: Cell


def over_releases(
    chart: matrix.Matrix, file: Path, axes: dict[str, Any], good: str, bad: str
) -> tuple[list[Point], bool]:
    """The releases from the good one to the bad one, and whether that is backwards in time."""
    releases = [str(value) for value in chart.axes["vllm"]]
    for name in (good, bad):
        if name not in releases:
            raise UsageError(f"{name}: is no release of the matrix, which has {', '.join(releases)}")
    names, backwards = between(releases, good, bad)
    return [Point(name=n, file=file, chart=chart, cell=cell_at(chart, {**axes, "vllm": n})) for n in names], backwards


def over_versions(
    chart: matrix.Matrix,
    file: Path,
    axes: dict[str, Any],
    package: str,
    *,
    among: str,
    ends: tuple[str, str],
    on: RunOptions,
) -> tuple[list[Point], bool]:
    """The versions of a package from the good end to the bad one, each over the cell's own release."""
    release = str(axes["vllm"])
    cell = cell_at(chart, axes)
    (one,) = planned([cell], choose(on.engine, on.address), on.evidence).planned
    if one.evidence is Evidence.DEVICE:
        raise UsageError(
            f"--over {package}: {axes['arch']} is a device here, whose environment is made by hand: take "
            "--evidence emulated, or name a cell of another arch"
        )
    if release not in chart.environments:
        raise UsageError(f"--over {package}: {release} is no release of the matrix: name a cell of one")
    given = [one.strip() for one in among.split(",")] if among else []
    packages.check(package, given)
    versions = given or packages.available(package)
    for name in ends:
        if name not in versions:
            raise UsageError(f"{package} {name}: is none of {', '.join(versions[-20:])}: name one of them")
    names, backwards = between(versions, *ends)
    points = []
    for name in names:
        made = packages.matrix_with(file, release, package, name)
        points.append(Point(name=name, file=made, chart=matrix.load(made), cell=cell))
    return points, backwards


def between(names: Sequence[str], good: str, bad: str) -> tuple[list[str], bool]:
    """The names from the good one to the bad one, and whether that is against their order."""
    if good == bad:
        raise UsageError(f"--good and --bad are both {good}: name two between which it changed")
    start, end = names.index(good), names.index(bad)
    return (list(names[start : end + 1]), False) if start < end else (list(names[end : start + 1])[::-1], True)


def cell_at(chart: matrix.Matrix, axes: dict[str, Any]) -> Cell:
    """The cell with these values; UsageError where the matrix has no such one."""
    for axis, value in axes.items():
        if value not in chart.axes.get(axis, ()):
            raise UsageError(f"the matrix has no {axis} {value}: name a cell of it, as `runner list` prints them")
    (cell,) = expand.cells(chart, {axis: (axes[axis],) for axis in chart.axes})
    return cell
