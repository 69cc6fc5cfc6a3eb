"""`runner env build|list|clean`: data on standard output, what happens meanwhile on standard error."""

import dataclasses
import json as jsons
from collections.abc import Sequence

from rich.table import Column, Table

from runner import output
from runner.environments import daemon, inventory, progress, sources
from runner.environments.image import ensure_image
from runner.environments.inventory import Built
from runner.environments.recipe import recipe_for
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
    with progress.shown() as say:
        if engine is EngineName.DOCKER:
            client = daemon.connect()
            places = [ensure_image(client, recipe, say=say).tag for recipe in recipes]
            client.close()
        else:
            places = [str(ensure_local(recipe, say=say).python) for recipe in recipes]
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


def table(found: Sequence[Built]) -> Table:
    """One row for each thing that was built."""
    shown = Table("kind", "vllm", "state", "size", "age", Column("place", overflow="fold"), box=None)
    for one in found:
        days = one.age_s / 86400
        age = f"{days:.0f} d" if days >= 1 else f"{one.age_s / 3600:.1f} h"
        shown.add_row(one.kind, one.release or _SHARED, one.state, progress.size(one.bytes), age, one.name)
    return shown
