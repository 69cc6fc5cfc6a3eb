"""The image that ours are built on: the one asked for, the one made here, or the one that images.lock names."""

import os
import shutil
import subprocess
import tomllib
from dataclasses import dataclass

from docker import DockerClient
from docker.errors import APIError, ImageNotFound

from runner.environments.progress import Say
from runner.environments.recipe import shipped
from runner.errors import EnvironmentBroken
from runner.messages import clean

VARIABLE = "ATTNMATRIX_BASE_IMAGE"
CUDA_VARIABLE = "ATTNMATRIX_CUDA_BASE_IMAGE"


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseImage:
    """A base image that the daemon has; `complete` where an image can be built on it without a network."""

    name: str
    id: str
    complete: bool = False


def base_image(client: DockerClient, *, cuda: bool = False, say: Say) -> BaseImage:
    """Find, pull or make a base image; EnvironmentBroken with the ways to get one where none of that works.

    `cuda`: one with a compiler too.
    """
    variable, made_here, upstream = _names(cuda)
    if asked := os.environ.get(variable):
        if (found := _present(client, asked)) or (found := _pulled(client, asked, say)[0]):
            return BaseImage(name=asked, id=found)
        raise EnvironmentBroken(f"base image {asked}: the daemon neither has nor gets it: correct {variable}")
    if here := present_base(client, cuda=cuda):
        return here
    found, trouble = _pulled(client, upstream, say)
    if found:
        return BaseImage(name=upstream, id=found)
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
        f"base image: cannot get {upstream}: {trouble}\n"
        f"What to do: run {how} as root (it needs debootstrap), or name an image that the daemon has, with Python "
        f"3.11 and its venv{needs} in {variable}, or run cells without containers: --engine local"
    )


def present_base(client: DockerClient, *, cuda: bool = False) -> BaseImage | None:
    """The base image that a build would take, where the daemon has it."""
    variable, made_here, upstream = _names(cuda)
    asked = os.environ.get(variable)
    for name in [asked] if asked else [made_here, upstream]:
        if found := _present(client, name):
            return BaseImage(name=name, id=found, complete=name == made_here and not asked)
    return None


def _names(cuda: bool) -> tuple[str, str, str]:
    """The variable that names a base image, the one that is made here, and the one that a registry has."""
    entry = tomllib.loads(shipped("containers/images.lock").read_text())["cuda" if cuda else "cpu"]
    upstream = entry["image"]
    if "digest" in entry:
        upstream = f"{upstream.partition(':')[0]}@{entry['digest']}"
    return CUDA_VARIABLE if cuda else VARIABLE, entry["local"], upstream


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
