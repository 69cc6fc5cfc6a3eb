"""The walls around a container, judged from what a cell sees inside, and what befalls containers in particular."""

import io
import subprocess
from pathlib import Path

import docker
import pytest
import requests

from runner.engines.base import CannotStart, NotNow
from runner.engines.docker import DockerEngine
from runner.engines.walls import Walls
from runner.environments.base_image import LABEL
from runner.model import Death, State, WorkerReady
from tests.contract.bench import CASES, WORKER, Bench, cell, order, passed

pytestmark = pytest.mark.docker


@pytest.fixture
def bench(docker_engine: DockerEngine, tmp_path: Path) -> Bench:
    return Bench(docker_engine, tmp_path)


@pytest.fixture
def seen(bench: Bench) -> list[list[str]]:
    (outcome,) = bench.do("print_the_surroundings")
    assert passed(outcome)
    return [line.split() for line in bench.log(outcome).splitlines()]


def test_a_cell_has_no_privileges(seen: list[list[str]]) -> None:
    assert ["uid", "0"] not in seen
    assert [line for line in seen if line[0] == "uid"]
    assert ["capabilities", "0" * 16, "0" * 16] in seen
    assert ["no_new_privileges", "1"] in seen


def test_a_cell_has_no_network(seen: list[list[str]]) -> None:
    (interfaces,) = [line[1:] for line in seen if line[0] == "interfaces"]
    # A kernel may add tunnel devices to every new network namespace; they are down and lead nowhere.
    assert "lo" in interfaces
    assert not [name for name in interfaces if name.startswith(("eth", "en", "docker", "veth", "br"))]


def test_a_cell_can_write_to_its_tmp_only(seen: list[list[str]]) -> None:
    assert [line[1] for line in seen if line[0] == "writable"] == ["/tmp"]
    assert ["locked", "/"] in seen
    assert ["locked", "/attnmatrix/cases"] in seen


def test_a_cell_sees_nothing_of_the_host_but_the_cases_and_the_worker(seen: list[list[str]]) -> None:
    mounts = {line[2]: (line[1], line[4].split(",")) for line in seen if line[0] == "mount"}
    ours = {place for place in mounts if place.startswith("/attnmatrix")}
    assert ours == {"/attnmatrix/cases", "/attnmatrix/worker.py"}
    assert all("ro" in mounts[place][1] for place in ours)
    assert "ro" in mounts["/"][1]
    # Docker itself puts three files of its own into every container.
    own = {"/etc/resolv.conf", "/etc/hostname", "/etc/hosts"}
    from_disk = {place for place, (what, _) in mounts.items() if what.startswith("/dev/")}
    assert from_disk <= ours | own
    assert not [line for line in seen if line[0] == "socket"]


def test_a_cell_that_eats_memory_is_oom_and_the_next_is_whole(bench: Bench) -> None:
    killed, after = bench.do("eat_memory", "nothing")
    assert killed.death == Death(out_of_memory=True)
    assert killed.cases[0].state is State.OOM
    assert passed(after)


def test_a_cell_cannot_kill_its_worker(bench: Bench) -> None:
    outcome, after = bench.do("send_every_signal_to_the_worker", "nothing")
    assert passed(outcome)
    assert passed(after)
    assert len([event for event in bench.events if isinstance(event, WorkerReady)]) == 1


def test_the_image_is_in_the_outcome(bench: Bench, docker_client: docker.DockerClient, image: str) -> None:
    (outcome,) = bench.do("nothing")
    assert outcome.environment["image_digest"] == docker_client.images.get(image).id
    assert outcome.environment["base_digest"] == "", "nothing says what it is built on"


def test_the_digest_of_an_images_base_is_in_the_outcome(
    docker_client: docker.DockerClient, image: str, tmp_path: Path
) -> None:
    """An image made by hand, of a base that was named by its digest, as containers/cuda.Dockerfile labels it."""
    digest = f"sha256:{'ab' * 32}"
    text = io.BytesIO(f"FROM {image}\nLABEL {LABEL}=vllm/vllm-openai@{digest}\n".encode())
    made, _ = docker_client.images.build(fileobj=text, rm=True)
    engine = DockerEngine(
        docker_client, image_for=lambda _: str(made.id), cases=CASES, worker=WORKER, run_id="labelled"
    )
    try:
        (outcome,) = Bench(engine, tmp_path).do("nothing")
        assert outcome.environment["base_digest"] == digest
    finally:
        engine.close()
        docker_client.images.remove(str(made.id))


def test_an_image_that_is_not_there_is_infra_with_its_name(docker_client: docker.DockerClient, tmp_path: Path) -> None:
    engine = DockerEngine(
        docker_client, image_for=lambda _: "attnmatrix-none:1", run_id="none", worker=WORKER, cases=CASES
    )
    first, second = Bench(engine, tmp_path).do("nothing", "nothing")
    assert "attnmatrix-none:1" in first.infra
    assert second.infra == first.infra


def refusal(status: int, explanation: str) -> docker.errors.APIError:
    """As docker-py makes it of the daemon's answer (Docker Engine API, "Errors")."""
    response = requests.Response()
    response.status_code = status
    return docker.errors.APIError("refused", response=response, explanation=explanation)


@pytest.mark.parametrize(
    ("status", "explanation", "kind", "words"),
    [
        (409, "removal of container 1f is already in progress", NotNow, "Docker refused: removal of container"),
        (503, "starting", NotNow, "Docker refused: starting"),
        (500, "mkdir /var/lib/docker/1f: no space left on device", NotNow, "Docker's disk is full"),
        (500, "unknown runtime", CannotStart, "Docker refused: unknown runtime"),
        (400, "invalid mount", CannotStart, "Docker refused: invalid mount"),
    ],
)
def test_what_passes_is_told_from_what_does_not(
    docker_engine: DockerEngine,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    explanation: str,
    kind: type[Exception],
    words: str,
) -> None:
    def create(*_: object, **__: object) -> None:
        raise refusal(status, explanation)

    monkeypatch.setattr(docker.models.containers.ContainerCollection, "create", create)
    with pytest.raises(CannotStart, match=words) as raised:
        docker_engine.start(order(cell("nothing")))
    assert type(raised.value) is kind


def test_the_walls_are_the_same_for_the_sdk_and_for_the_command_line(
    docker_client: docker.DockerClient, image: str
) -> None:
    """`runner repro` prints a command that starts what a worker's container is: the daemon says the same of both."""
    walls = Walls(memory="64m", scratch="16m", pids=64)
    by_sdk = docker_client.containers.create(image, ["true"], **walls.for_sdk())
    words = ["docker", "create", *walls.for_command_line(), image, "true"]
    name = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    by_words = docker_client.containers.get(name)
    try:
        asked, got = ({**one.attrs["HostConfig"], "User": one.attrs["Config"]["User"]} for one in (by_sdk, by_words))
        for key in ("NetworkMode", "ReadonlyRootfs", "Tmpfs", "CapDrop", "SecurityOpt", "User", "PidsLimit", "Memory",
                    "MemorySwap", "Privileged", "CapAdd", "Binds", "Devices"):  # fmt: skip
            assert (asked[key] or None) == (got[key] or None), key
    finally:
        by_sdk.remove()
        by_words.remove()
