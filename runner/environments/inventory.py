"""What was built on this machine, how large and how old it is, and the removal of what nobody uses."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import APIError
from docker.models.images import Image

from runner.environments import daemon, image, venv
from runner.environments.locks import if_free

STAGE_AGE = "1h"
"""Longer than a build takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """One environment or image; `state` is whole or broken, `over` the name of what it is laid over."""

    kind: str
    name: str
    release: str
    state: str
    bytes: int
    age_s: float
    idle_s: float = 0.0
    """Since it was last used, where that is known, else since it was made."""
    over: str = ""


def local(root: Path = venv.ROOT) -> list[Built]:
    """The local environments, whole or not."""
    found = []
    places = sorted(path for pattern in venv.NAMES for path in root.glob(pattern) if path.is_symlink())
    for place in places:
        environment = venv.whole(place)
        found.append(
            Built(
                kind="local",
                name=str(place),
                release=environment.release if environment else "",
                state="whole" if environment else "broken",
                bytes=_bytes(place),
                age_s=(age := time.time() - place.lstat().st_mtime),
                idle_s=age,
                over=environment.over if environment else "",
            )
        )
    return found


def images(client: DockerClient) -> list[Built]:
    """The images that we built; layers that they share count for each."""
    ours = client.images.list(filters={"label": image.RELEASE})
    return [
        Built(
            kind="docker",
            name=one.tags[0] if one.tags else str(one.id),
            release=one.labels.get(image.RELEASE, ""),
            state="whole",
            bytes=int(one.attrs["Size"]),
            age_s=_since(one.attrs["Created"]),
            idle_s=min(_since(when) for when in _marks(one.attrs)),
            over=_below(one, ours),
        )
        for one in ours
    ]


def _marks(about: dict[str, Any]) -> list[str]:
    """When it was created, and when it was last tagged: by a build, or by a run that took it."""
    tagged = (about.get("Metadata") or {}).get("LastTagTime")
    return [about["Created"], *([tagged] if tagged else [])]


def _since(when: str) -> float:
    return time.time() - datetime.fromisoformat(when).timestamp()


def _below(one: Image, ours: list[Image]) -> str:
    """The image of ours that it is built on: of those whose layers it begins with, the one with most; empty without."""
    mine = one.attrs["RootFS"].get("Layers") or []
    under = [(layers, other) for other in ours if (layers := other.attrs["RootFS"].get("Layers") or [])]
    under = [(layers, other) for layers, other in under if len(layers) < len(mine) and mine[: len(layers)] == layers]
    if not under:
        return ""
    found = max(under, key=lambda pair: len(pair[0]))[1]
    return str(found.tags[0] if found.tags else found.id)


def everything() -> list[Built]:
    """All local environments, and all images where a daemon answers."""
    found = local()
    if daemon.examine().answers:
        client = daemon.connect()
        found += images(client)
        client.close()
    return found


def in_order(found: list[Built]) -> list[Built]:
    """Those that were used longest ago first. Whatever is laid over something goes before it, and counts as a use."""
    by_name = {_key(one): one for one in found}
    idle = {name: one.idle_s for name, one in by_name.items()}
    height = dict.fromkeys(by_name, 0)
    for one in found:
        below, steps = one.over, 1
        while below in by_name and steps <= len(found):
            idle[below] = min(idle[below], one.idle_s)
            height[below] = min(height[below], -steps)
            below, steps = by_name[below].over, steps + 1
    ordered = sorted(found, key=lambda one: (-idle[_key(one)], -height[_key(one)]))
    return [replace(one, idle_s=idle[_key(one)]) for one in ordered]


def _key(one: Built) -> str:
    """As `over` names it."""
    return Path(one.name).name if one.kind == "local" else one.name


class Remover:
    """Removes environments and images one by one, but for what is in use, and for what that stands on."""

    def __init__(
        self, *, tell: Callable[[str], None], root: Path = venv.ROOT, client: DockerClient | None = None
    ) -> None:
        self._tell, self._root, self._client = tell, root, client
        self._kept: dict[str, str] = {}

    def remove(self, one: Built) -> bool:
        """Whether it is gone; what is laid over it must have been asked for before."""
        name = _key(one)
        why = f"{self._kept[name]} is in use" if name in self._kept else self._take(one)
        if why:
            self._tell(f"{one.name}: kept, {why}")
            self._kept.setdefault(one.over, name)
        else:
            self._tell(f"{one.name}: removed")
        return not why

    def _take(self, one: Built) -> str:
        """Empty where it is gone, else why not."""
        if one.kind == "local":
            return self._environment(Path(one.name))
        assert self._client is not None
        try:
            self._client.images.remove(one.name)
        except APIError as error:
            return str(error.explanation or error)
        return ""

    def _environment(self, place: Path) -> str:
        with if_free(self._root / f"{place.name}.lock") as free:
            if not free or venv.in_use(place):
                return "it is in use"
            target = place.resolve()
            place.unlink()  # first, so that nobody takes what is half removed
            shutil.rmtree(target, ignore_errors=True)
            place.with_name(f"{place.name}.log").unlink(missing_ok=True)
            return ""


def clean_local(root: Path = venv.ROOT, *, tell: Callable[[str], None]) -> int:
    """Remove local environments that nobody builds or uses; gives the bytes that they had."""
    for left_over in venv.sweep(root):
        tell(f"{left_over}: removed, left by a build that was killed or replaced")
    remover = Remover(tell=tell, root=root)
    return sum(one.bytes for one in in_order(local(root)) if remover.remove(one))


def clean_images(client: DockerClient, *, tell: Callable[[str], None]) -> int:
    """Remove images of ours that no container has; gives the bytes that the daemon has less of."""
    before = layers_bytes(client)
    remover = Remover(tell=tell, client=client)
    for one in in_order(images(client)):
        remover.remove(one)
    clean_stages(client)
    return max(0, before - layers_bytes(client))


def clean_stages(client: DockerClient) -> None:
    """Remove what builds left that were killed; one that goes on is younger."""
    client.images.prune(filters={"dangling": True, "label": image.STAGE, "until": STAGE_AGE})


def layers_bytes(client: DockerClient) -> int:
    """What all images of a daemon take, layers that they share counted once."""
    return int(client.df().get("LayersSize") or 0)


def _bytes(place: Path) -> int:
    try:
        return venv.extent(place)[1]
    except OSError:  # so broken that there is nothing to measure
        return 0
