"""What environments are made from, when they are made on another machine: names within an archive in place of paths."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from runner import checkouts
from runner.environments.recipe import Recipe, recipe_for
from runner.matrix import Matrix
from runner.model import CandidateKind

FOLDER = "environments"


def packed(chart: Matrix, releases: Collection[str]) -> tuple[Matrix, dict[str, Path]]:
    """The matrix with names for the locks and candidates of these releases, and the files by those names."""
    files: dict[str, Path] = {}
    environments = dict(chart.environments)
    for release in releases:
        spec, recipe = chart.environments[release], recipe_for(chart, release)
        lock = recipe.lock if isinstance(recipe, Recipe) else recipe.over.lock
        name = f"{FOLDER}/{release}/{lock.name}"
        files[name] = lock
        spec = replace(spec, lock=name)
        if candidate := spec.candidate:
            source = Path(candidate.path)
            place = f"{FOLDER}/{release}/candidate/{source.name}"
            if candidate.kind is CandidateKind.CHECKOUT:
                files |= {f"{place}/{file}": path for file, path in checkouts.files(source).items()}
            else:
                files[place] = source
            spec = replace(spec, candidate=replace(candidate, path=place))
        environments[release] = spec
    return replace(chart, environments=environments), files


def alone(chart: Matrix, release: str) -> Matrix:
    """As much of the matrix as makes the environment of one release."""
    return replace(chart, environments={release: chart.environments[release]}, rules=(), known=(), tiers={})


def unpacked(chart: Matrix, place: Path) -> Matrix:
    """The matrix that `packed` gave, where the archive lies in `place`; a lock is found there as what ships is."""

    def at(path: str) -> str:
        return str(place / path)

    environments = {
        release: replace(spec, candidate=replace(spec.candidate, path=at(spec.candidate.path)))
        if spec.candidate and not Path(spec.candidate.path).is_absolute()
        else spec
        for release, spec in chart.environments.items()
    }
    return replace(chart, environments=environments)
