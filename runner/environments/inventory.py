"""What was built on this machine, how large and how old it is, and the removal of what nobody uses."""

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from docker import DockerClient
from docker.errors import APIError

from runner.environments import daemon, image, venv
from runner.environments.locks import if_free


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """One environment or image; `state` is whole or broken, `over` the name of what it is laid over."""

    kind: str
    name: str
    release: str
    state: str
    bytes: int
    age_s: float
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
                age_s=time.time() - place.lstat().st_mtime,
                over=environment.over if environment else "",
            )
        )
    return found


def images(client: DockerClient) -> list[Built]:
    """The images that we built; layers that they share count for each."""
    found = []
    for one in client.images.list(filters={"label": image.RELEASE}):
        made = datetime.fromisoformat(re.sub(r"\.\d+", "", str(one.attrs["Created"])))
        found.append(
            Built(
                kind="docker",
                name=one.tags[0] if one.tags else str(one.id),
                release=one.labels.get(image.RELEASE, ""),
                state="whole",
                bytes=int(one.attrs["Size"]),
                age_s=time.time() - made.timestamp(),
            )
        )
    return found


def everything() -> list[Built]:
    """All local environments, and all images where a daemon answers."""
    found = local()
    if daemon.examine().answers:
        client = daemon.connect()
        found += images(client)
        client.close()
    return found


def _never() -> bool:
    return False


def clean_local(root: Path = venv.ROOT, *, tell: Callable[[str], None], enough: Callable[[], bool] = _never) -> int:
    """Remove local environments that nobody builds or uses, the oldest first, until `enough`; gives the bytes freed."""
    for left_over in venv.sweep(root):
        tell(f"{left_over}: removed, left by a build that was killed or replaced")
    freed = 0
    kept: dict[str, str] = {}  # by what it needs, too
    for one in _tops_first(local(root)):
        if enough():
            break
        place = Path(one.name)
        with if_free(root / f"{place.name}.lock") as free:
            if place.name in kept or not free or venv.in_use(place):
                tell(f"{place}: kept, {kept.get(place.name, 'it')} is in use")
                kept.setdefault(one.over, place.name)
                continue
            target = place.resolve()
            place.unlink()  # first, so that nobody takes what is half removed
            shutil.rmtree(target, ignore_errors=True)
            place.with_name(f"{place.name}.log").unlink(missing_ok=True)
            freed += one.bytes
            tell(f"{place}: removed")
    return freed


def _tops_first(found: list[Built]) -> list[Built]:
    """What is laid over something before that: it must go first, or keep what it stands on."""
    over = {Path(one.name).name: one.over for one in found}

    def height(name: str) -> int:
        return 1 + height(over[name]) if name in over else 0

    return sorted(found, key=lambda one: (-height(Path(one.name).name), -one.age_s))


def clean_images(client: DockerClient, *, tell: Callable[[str], None], enough: Callable[[], bool] = _never) -> int:
    """Remove images of ours that no container uses, until `enough`; gives the bytes freed."""
    freed = 0
    for one in sorted(images(client), key=lambda one: one.age_s):  # the newest first: a base is older
        if enough():
            break
        try:
            client.images.remove(one.name)
        except APIError as error:
            tell(f"{one.name}: kept, {error.explanation or error}")
            continue
        freed += one.bytes
        tell(f"{one.name}: removed")
    stages = client.images.prune(filters={"dangling": True, "label": image.STAGE})  # of builds that were killed
    return freed + int(stages.get("SpaceReclaimed") or 0)


def _bytes(place: Path) -> int:
    try:
        return venv.extent(place)[1]
    except OSError:  # so broken that there is nothing to measure
        return 0
