"""The images that the cells of a job need on a machine with a GPU: built before the cells run, and old ones removed."""

import contextlib
import os
from collections.abc import Sequence

from docker import DockerClient
from docker.errors import APIError

from runner import select
from runner.ci import cleaning
from runner.environments import daemon, inventory
from runner.environments.image import CUDA_REPOSITORY, NEEDED_BYTES_CUDA, ensure_image, find_image
from runner.environments.progress import Say
from runner.environments.recipe import CUDA_IMAGE, Layer, cuda_lock, recipe_for
from runner.machine import CUDA_PYTHON, choose, planned
from runner.matrix import Matrix
from runner.model import Evidence
from runner.options import EngineName, RunOptions

DAYS = 14


def releases_of(chart: Matrix, options: RunOptions) -> list[str]:
    """The values of the vllm axis whose cells a run would give to a GPU of this machine, in containers."""
    on = choose(options.engine)
    if on.engine is not EngineName.DOCKER:
        return []
    cells = select.select(chart, filters=options.filters, tier_name=options.tier, shard=options.shard)
    orders = planned(cells, on, options.evidence).orders
    return list(dict.fromkeys(order.environment for order in orders if order.evidence is Evidence.DEVICE))


def needed(chart: Matrix, releases: Sequence[str], say: Say) -> list[Layer]:
    """What is to be built for cells of these releases; none where their image or their Python was made by hand."""
    for variable in (CUDA_PYTHON, CUDA_IMAGE):
        if variable in os.environ:
            say(f"{variable} is set: the cells run in {os.environ[variable]}, and nothing is built")
            return []
    layers: list[Layer] = []
    for release in releases:
        if cuda_lock(chart, release):
            layers.append(recipe_for(chart, release, cuda=True))
        else:
            say(f"vllm {release}: no lock for machines with GPUs ships: {CUDA_REPOSITORY}:{release} is made by hand")
    return layers


def provide(layers: Sequence[Layer], say: Say) -> list[str]:
    """The names of the images of these layers; each is built where it is not there, with room made for it before."""
    if not layers:
        return []
    with contextlib.closing(daemon.connect()) as client:
        names = []
        for layer in layers:
            if find_image(client, _lowest(layer)) is None:
                cleaning.make_room(NEEDED_BYTES_CUDA / 1e9, say)
            names.append(ensure_image(client, layer, say=say).tag)
        remove_old(client, keep=names, say=say)
        return names


def remove_old(client: DockerClient, *, keep: Sequence[str], say: Say, days: float = DAYS) -> None:
    """Remove the CUDA images that are older than that and that no image of `keep` stands on, the newest first.

    The daemon keeps what another image stands on, or what a container runs.
    """
    found = [one for one in inventory.images(client) if one.name.startswith(f"{CUDA_REPOSITORY}:")]
    for one in sorted(found, key=lambda one: one.age_s):
        if one.name in keep or one.age_s < days * cleaning.DAY_S or _stands_under(client, one.name, keep):
            continue
        with contextlib.suppress(APIError):
            client.images.remove(one.name)
            say(f"{one.name}: removed, older than {days:g} days")


def _stands_under(client: DockerClient, name: str, others: Sequence[str]) -> bool:
    """Whether one of the others is this image with more layers."""
    layers = client.images.get(name).attrs["RootFS"]["Layers"]
    return any(client.images.get(other).attrs["RootFS"]["Layers"][: len(layers)] == layers for other in others)


def _lowest(layer: Layer) -> Layer:
    while layer.over:
        layer = layer.over
    return layer
