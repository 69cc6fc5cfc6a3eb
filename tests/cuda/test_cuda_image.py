"""The CUDA image, built for real and tried up to where a kernel would launch. Slow: half an hour, and 40 GB of disk.

No GPU is here. NVML, the driver and the CUDA runtime are played (`played/`), and so is NVIDIA's container toolkit
(toolkit.py). All else is what runs on a machine with a GPU: the image, its torch, vLLM and FlashInfer for CUDA, its
compiler, the runner, the engine with its walls, and the worker. When all of it has passed, the record of the build is
written: containers/cuda.built.json, which a quick test compares with the recipe.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient
from docker.errors import ContainerError

from runner import candidates, matrix
from runner.engines.walls import NOBODY, Walls
from runner.environments import Image, ensure_image, recipe_for
from runner.environments.base_image import base_image
from runner.environments.image import RECIPE, find_image
from tests.cuda import record, toolkit

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(5400)]
PLAYED = Path(__file__).with_name("played")
REFUSED = "operation not supported"
"""What torch says of cudaErrorNotSupported, which is how the played runtime answers a launch."""


@pytest.fixture(scope="module")
def built(
    docker_client: DockerClient, shipped: matrix.Matrix, request: pytest.FixtureRequest
) -> Iterator[tuple[Image, dict[str, Any]]]:
    """The image, and the record, which is written where nothing failed."""
    layer = recipe_for(shipped, record.RELEASE, cuda=True)
    base_image(docker_client, cuda=True, say=print)  # not of this recipe's minutes
    was_there, started = find_image(docker_client, layer), time.monotonic()
    image = ensure_image(docker_client, layer, root=request.config.rootpath / ".runner/images", say=print)
    made = docker_client.images.get(image.id)
    assert made.labels[RECIPE] == layer.digest
    about = {
        "recipe": record.recipe(),
        "release": record.RELEASE,
        "digest": image.id,
        "gigabytes": round(made.attrs["Size"] / 1e9, 1),
        "minutes": None if was_there else round((time.monotonic() - started) / 60),
        "built": datetime.now(UTC).date().isoformat(),
    }
    failed = request.session.testsfailed
    yield image, about
    place = request.config.rootpath / record.PLACE
    before = json.loads(place.read_text()) if place.exists() else {}
    if before.get("recipe") == about["recipe"] and about["minutes"] is None:
        about |= {"minutes": before["minutes"], "built": before["built"]}
    if request.session.testsfailed == failed:
        place.write_text(json.dumps(about, indent=1) + "\n")


@pytest.fixture(scope="module")
def image(built: tuple[Image, dict[str, Any]]) -> Image:
    return built[0]


@pytest.fixture(scope="module")
def played(docker_client: DockerClient, image: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the played libraries, made with the image's own compiler."""
    folder = tmp_path_factory.mktemp("played")
    folder.chmod(0o777)
    folder.parent.chmod(0o755)
    docker_client.containers.run(
        image.id,
        ["bash", "/played/build.sh", "/out"],
        remove=True,
        network_mode="none",
        user="0:0",
        volumes={str(PLAYED): {"bind": "/played", "mode": "ro"}, str(folder): {"bind": "/out", "mode": "rw"}},
    )
    return folder


def inside(client: DockerClient, image: Image, code: str, played: Path | None = None, **variables: str) -> str:
    """What a script prints in the image, behind the walls of a cell."""
    try:
        output: bytes = client.containers.run(
            image.id,
            ["python3", "-W", "ignore", "-c", code],
            remove=True,
            stderr=True,
            **Walls(user=NOBODY).for_sdk(),
            mounts=toolkit.mounts(played) if played else [],
            environment={"HOME": "/tmp", **(toolkit.VARIABLES if played else {}), **variables},
        )
    except ContainerError as error:
        pytest.fail(f"{error.stderr.decode()[-3000:]}", pytrace=False)
    return output.decode()


VERSIONS = "import torch, vllm, flashinfer; print(torch.__version__, vllm.__version__, flashinfer.__version__)"
COMPILED = """
import torch, vllm._C_stable_libtorch, vllm._moe_C_stable_libtorch, vllm.vllm_flash_attn._vllm_fa2_C
import vllm.vllm_flash_attn._vllm_fa3_C
from vllm.platforms import current_platform
print(current_platform.__class__.__name__, current_platform.get_device_capability())
print(torch.ops._vllm_fa3_C.fwd, torch.ops._C_cache_ops.reshape_and_cache_flash)
"""


def test_it_has_the_builds_for_cuda_and_says_what_is_missing_without_a_driver(
    docker_client: DockerClient, image: Image
) -> None:
    assert "2.13.0+cu130 0.32.0 0.7.0.post1" in inside(docker_client, image, VERSIONS)
    code = "try: import torch, vllm._C_stable_libtorch\nexcept ImportError as error: print(error)"
    assert "libcuda.so.1: cannot open shared object file" in inside(docker_client, image, code)


def test_the_compiled_code_of_vllm_loads_on_a_driver(docker_client: DockerClient, image: Image, played: Path) -> None:
    said = inside(docker_client, image, COMPILED, played, ATTNMATRIX_EVIDENCE="device", VLLM_PLUGINS="attnmatrix")
    assert "NvmlCudaPlatform DeviceCapability(major=9, minor=0)" in said
    assert "fwd" in said
    assert "reshape_and_cache_flash" in said


def test_a_patch_and_a_checkout_are_one_layer_more(
    docker_client: DockerClient, image: Image, shipped: matrix.Matrix, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A commit of vLLM is a checkout. The compiled code is the release's."""
    root = request.config.rootpath / ".runner/images"
    site = "/opt/vllm/lib/python3.11/site-packages"
    first, second = inside(docker_client, image, f"print(open('{site}/vllm/version.py').read())").splitlines()[:2]
    patch = f"--- a/vllm/version.py\n+++ b/vllm/version.py\n@@ -1,2 +1,3 @@\n {first}\n+# changed\n {second}\n"
    (tmp_path / "fix.patch").write_text(patch)
    (tmp_path / "commit/vllm").mkdir(parents=True)
    (tmp_path / "commit/vllm/__init__.py").write_text("made = 'of a commit'\n")
    asked = [f"fix={tmp_path / 'fix.patch'}@{record.RELEASE}", f"commit={tmp_path / 'commit'}@{record.RELEASE}"]
    chart = candidates.joined(shipped, asked)
    fix, commit = (
        ensure_image(docker_client, recipe_for(chart, name, cuda=True), root=root, say=print)
        for name in ("fix", "commit")
    )
    try:
        assert "# changed" in inside(docker_client, fix, f"print(open('{site}/vllm/version.py').read())")
        code = f"import os; print(os.listdir('{site}/vllm')); print(open('{site}/vllm/__init__.py').read())"
        said = inside(docker_client, commit, code)
        assert "made = 'of a commit'" in said
        assert "_C_stable_libtorch.abi3.so" in said
        assert "config" not in said, "what the commit lacks is gone"
        below = docker_client.images.get(image.id).attrs["RootFS"]["Layers"]
        for one in (fix, commit):
            assert docker_client.images.get(one.id).attrs["RootFS"]["Layers"][: len(below)] == below
    finally:
        for one in (fix, commit):
            docker_client.images.remove(one.tag)


JIT = """
from flashinfer.jit import env
from flashinfer.jit.cpp_ext import get_cuda_path, get_cuda_version
from flashinfer.page import gen_page_module
print(get_cuda_path(), get_cuda_version(), env.FLASHINFER_JIT_DIR)
module = gen_page_module()
module.build(verbose=False)
found = module.get_library_path().read_bytes()
print("sm_90a" if b"sm_90a" in found else "no code for sm_90a", len(found))
"""


def test_flashinfer_finds_its_compiler_and_compiles_a_kernel_behind_the_walls(
    docker_client: DockerClient, image: Image, played: Path
) -> None:
    """For the arch of the device, which it asks torch for."""
    said = inside(docker_client, image, JIT, played)
    assert "/opt/env/cuda 13.0 /tmp/.cache/flashinfer/0.7.0.post1/90a/cached_ops" in said
    assert "\nsm_90a " in said


def runner(played: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """On a machine that has the played GPU and the toolkit."""
    command = [sys.executable, str(Path(toolkit.__file__)), str(played), *arguments]
    env = os.environ | {"LD_LIBRARY_PATH": str(played)}
    env.pop("ATTNMATRIX_CUDA_IMAGE", None)
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, check=False)


def test_the_doctor_sees_the_gpu_and_the_image(image: Image, played: Path, tmp_path: Path) -> None:
    found = json.loads(runner(played, "doctor", "--json", cwd=tmp_path).stdout)
    about = {one["what"]: (one["grade"], one["found"]) for one in found}
    assert about["GPU 0"] == ("ok", f"NVIDIA H200, sm90, 143771 MiB, driver 580.95.05, {toolkit.UUID}")
    assert image.tag in about["Environments"][1]


def test_cells_run_until_a_kernel_would_launch_and_none_passes(
    image: Image, played: Path, shipped: matrix.Matrix, tmp_path: Path
) -> None:
    """The engine, the worker, vLLM's own choices for an H200 are real. Then torch asks for its first kernel."""
    recipe = recipe_for(shipped, record.RELEASE, cuda=True).digest
    out = tmp_path / "run"
    filters = ["--filter", f"{record.RELEASE},sm90,k0,c64,small,hybrid_on", "--filter", "flash_attn,flashinfer"]
    filters += ["--filter", "case=metadata,case=forward,case=engine"]
    done = runner(played, "--engine", "docker", *filters, "--require-device", "--out", str(out), cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    rows = json.loads((out / "results.json").read_text())
    assert len({(row["axes"]["backend"], row["axes"]["case"]) for row in rows}) == len(rows) == 6
    for row in rows:
        about = row["environment"]
        assert (row["evidence"], row["state"]) == ("device", "fail"), row["reason"]
        assert REFUSED in row["reason"]
        assert (about["gpu"], about["driver"]) == ("NVIDIA H200", "580.95.05")
        assert (about["vllm"], about["torch"]) == (record.RELEASE, "2.13.0")
        assert about["image_digest"] == image.id
        assert about["recipe_digest"] == recipe
