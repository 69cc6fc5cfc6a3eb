"""The image that ours are built on: the one asked for, the one made here, or the one that images.lock names."""

import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass

from docker import DockerClient
from docker.errors import APIError, ImageNotFound

from runner.environments.progress import Say
from runner.environments.recipe import shipped
from runner.errors import EnvironmentBroken, UsageError
from runner.messages import clean

VARIABLE = "ATTNMATRIX_BASE_IMAGE"
LABEL = "attnmatrix.base"  # of an image: the digest of its base, or the base by its digest; see cuda.Dockerfile
_LOCK = "containers/images.lock"
_DIGEST = re.compile(r"(?:^|@)(sha256:[0-9a-f]{64})$")
CUDA_VARIABLE = "ATTNMATRIX_CUDA_BASE_IMAGE"


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseImage:
    """A base image that the daemon has; `complete` where an image can be built on it without a network."""

    name: str
    id: str
    digest: str = ""
    """By which a registry gave it; empty for one that was made here, or where nobody knows."""
    complete: bool = False


def base_image(client: DockerClient, *, cuda: bool = False, say: Say) -> BaseImage:
    """Find, pull or make a base image; EnvironmentBroken with the ways to get one where none of that works.

    `cuda`: one with a compiler too.
    """
    kind, variable = ("cuda", CUDA_VARIABLE) if cuda else ("cpu", VARIABLE)
    made_here, wanted = _entry(kind)["local"], upstream(kind)
    if here := present_base(client, cuda=cuda):
        return here
    if asked := os.environ.get(variable):
        if found := _pulled(client, asked, say)[0]:
            return _of_registry(client, asked, found)
        raise EnvironmentBroken(f"base image {asked}: the daemon neither has nor gets it: correct {variable}")
    found, trouble = _pulled(client, wanted, say)
    if found:
        return _of_registry(client, wanted, found)
    script = shipped("containers/make-base.sh")
    if os.geteuid() == 0 and shutil.which("debootstrap") and shutil.which("docker"):
        say(f"base image: no registry can be reached, making one with {script}: takes a minute or two")
        made = subprocess.run(  # through sh: an installed script may have lost its mode
            ["/bin/sh", str(script), *(["--cuda"] if cuda else [])],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if made.returncode == 0 and (found := _present(client, made_here)):
            return BaseImage(name=made_here, id=found, complete=True)
        trouble = clean(made.stderr[-1500:])
    how, needs = (f"{script} --cuda", ", g++ and Python's headers,") if cuda else (str(script), "")
    raise EnvironmentBroken(
        f"base image: cannot get {wanted}: {trouble}\n"
        f"What to do: run {how} as root (it needs debootstrap), or name an image that the daemon has, with Python "
        f"3.11 and its venv{needs} in {variable}, or run cells without containers: --engine local"
    )


def present_base(client: DockerClient, *, cuda: bool = False) -> BaseImage | None:
    """The base image that a build would take, where the daemon has it."""
    kind, variable = ("cuda", CUDA_VARIABLE) if cuda else ("cpu", VARIABLE)
    if asked := os.environ.get(variable):
        return _of_registry(client, asked, found) if (found := _present(client, asked)) else None
    made_here, wanted = _entry(kind)["local"], upstream(kind)
    if found := _present(client, made_here):
        return BaseImage(name=made_here, id=found, complete=True)
    return _of_registry(client, wanted, found) if (found := _present(client, wanted)) else None


def upstream(kind: str) -> str:
    """The base image of a kind of environment, as Docker is to pull it: by its digest where images.lock has one."""
    entry = _entry(kind)
    if "digest" not in entry:
        return entry["image"]
    if not _DIGEST.fullmatch(entry["digest"]):
        raise UsageError(f"{_LOCK}: the digest under [{kind}] must be sha256: and 64 digits: `runner env pin {kind}`")
    return f"{_repository(entry['image'])}@{entry['digest']}"


def pinned(client: DockerClient, kind: str) -> str:
    """The lines of images.lock that pin a base image; EnvironmentBroken where its registry does not answer."""
    name = _entry(kind)["image"]
    try:
        # The digest of what the tag names for every platform, as the registry says it; nothing is pulled.
        found = str(client.images.get_registry_data(name).id)
    except APIError as error:
        raise EnvironmentBroken(
            f"base image {name}: its registry does not say its digest: {clean(str(error.explanation or error), 300)}: "
            "ask where a registry can be reached"
        ) from None
    return f'[{kind}]\nimage = "{name}"\ndigest = "{found}"'


def digest_in(label: object) -> str:
    """The digest that an image's label says of its base; empty where it says none."""
    found = _DIGEST.search(str(label))
    return found[1] if found else ""


def _entry(kind: str) -> dict[str, str]:
    entries = tomllib.loads(shipped(_LOCK).read_text())
    if kind not in entries:
        raise UsageError(f"{clean(kind, 40)} is no kind of base image: {_LOCK} has {', '.join(entries)}")
    return {str(key): str(value) for key, value in entries[kind].items()}


def _repository(image: str) -> str:
    """Without its tag: what follows a colon after the last slash. A colon before that is of a registry's port."""
    place, slash, name = image.rpartition("/")
    return f"{place}{slash}{name.partition(':')[0]}"


def _of_registry(client: DockerClient, name: str, id_: str) -> BaseImage:
    """With the digest by which it was pulled, or by which the daemon remembers to have got it from this repository."""
    digest = digest_in(name)
    repository = _repository(name.partition("@")[0])
    for known in client.images.get(name).attrs.get("RepoDigests") or ():
        if not digest and known.partition("@")[0] == repository:
            digest = digest_in(known)
    return BaseImage(name=name, id=id_, digest=digest)


def _present(client: DockerClient, name: str) -> str:
    try:
        return str(client.images.get(name).id)
    except ImageNotFound:
        return ""


def _pulled(client: DockerClient, name: str, say: Say) -> tuple[str, str]:
    """Its id, or why it could not be pulled."""
    say(f"base image: pulling {name}")
    try:
        client.images.pull(name)
    except APIError as error:  # NotFound too
        return "", clean(str(error.explanation or error), 300)
    return _present(client, name), ""
