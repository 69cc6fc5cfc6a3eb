"""Whole runs of real cells over a cluster: the table is that of this machine alone, also when the runner is ended."""

import gc
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.engines.docker import RUN
from runner.rundir import asked
from tests.contract.bench import ROOT
from tests.ray import cluster

pytestmark = [
    pytest.mark.env,
    pytest.mark.image,
    pytest.mark.timeout(1500),
    # Ray does not close the logs of its server for those outside (ray/_private/node.py).
    pytest.mark.filterwarnings("ignore:unclosed file.*ray_client_server:ResourceWarning"),
]

CELLS = ["flashinfer,flash_attn", "sm80,sm89,sm90,sm100", "k0,k1,k2,k3", "solo", "c64", "hybrid_on", "case=metadata"]
SHARED = ROOT / ".runner" / "envs"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A node's folder that has what releases share, so that only a release has to be laid over it."""
    home = tmp_path_factory.mktemp("home")
    (home / ".runner" / "envs").mkdir(parents=True)
    return home


NODE = {"memory": 3072 * cluster.MIB}


@pytest.fixture(scope="module")
def port() -> int:
    """Free a moment ago, for those who join from outside."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def address(home: Path, port: int) -> Iterator[str]:
    with cluster.started(home, NODE, NODE, ray_client_server_port=port) as started:
        gc.collect()  # here, where the filter above holds
        yield started.address


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "runner", *words]


def selected(engine: list[str], out: Path) -> list[str]:
    return command(*engine, "--no-known", "--out", str(out), *(word for each in CELLS for word in ("--filter", each)))


def table(out: Path) -> dict[str, dict[str, Any]]:
    """Every row, less its times and how often it was tried."""
    rows = json.loads((out / "results.json").read_text())
    for row in rows:
        del row["duration_s"], row["ended_at"], row["environment"]["machine"]
        for case in row["cases"]:
            del case["duration_s"]
    return {row["id"]: row for row in rows}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, home: Path) -> dict[str, dict[str, Any]]:
    """What this machine alone makes of the cells; the nodes get what releases share from its environment."""
    out = tmp_path_factory.mktemp("local") / "run"
    done = subprocess.run(selected(["--engine", "local"], out), check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1, done.stderr
    for base in SHARED.glob("base-*"):
        if base.is_symlink():
            (home / ".runner" / "envs" / base.name).symlink_to(base.resolve())
    return table(out)


@pytest.fixture(params=["a process of the cluster", "from outside"])
def joined(request: pytest.FixtureRequest, address: str, port: int) -> str:
    return address if request.param == "a process of the cluster" else f"ray://127.0.0.1:{port}"


def test_the_table_is_that_of_a_local_run_however_the_cluster_is_joined(
    local: dict[str, dict[str, Any]], joined: str, home: Path, tmp_path: Path
) -> None:
    over_ray = selected(["--engine", "ray", "--address", joined, "--json"], tmp_path / "run")
    done = subprocess.run(over_ray, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1, done.stderr
    assert {row["id"] for row in json.loads(done.stdout)} == local.keys()
    found = table(tmp_path / "run")
    assert len(local) == 32
    for id_, row in local.items():
        assert found[id_] == row, id_
    assert [path.name for path in (home / ".runner" / "envs").glob("vllm-0.32.0-*") if path.is_symlink()]
    assert cluster.wait_until(lambda: not cluster.workers(home) and not cluster.actors(home))


@pytest.mark.docker
def test_the_table_is_the_same_where_nodes_have_docker(
    local: dict[str, dict[str, Any]], docker_client: Any, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with cluster.started(tmp_path / "home", NODE, docker=True) as started:
        over_ray = selected(["--engine", "ray", "--address", started.address], out)
        done = subprocess.run(over_ray, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1, done.stderr
    found = table(out)
    digests = {row["environment"].pop("image_digest") for row in found.values()}
    assert len(digests) == 1, "all ran in containers of one image"
    assert digests.pop().startswith("sha256:")
    for id_, row in local.items():
        assert found[id_] == {**row, "environment": found[id_]["environment"]}, id_
    assert not docker_client.containers.list(all=True, filters={"label": f"{RUN}={asked(out).run_id}"})


def finished(out: Path) -> int:
    journal = out / "events.jsonl"
    return journal.read_text().count('"event":"cell_finished"') if journal.exists() else 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_run_that_is_ended_leaves_nothing_and_is_gone_on_with_to_the_same_table(
    local: dict[str, dict[str, Any]], address: str, home: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "run"
    over_ray = selected(["--engine", "ray", "--address", address], out)
    with subprocess.Popen(over_ray, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT) as runner:
        assert cluster.wait_until(lambda: finished(out) or runner.poll() is not None, 300)
        runner.send_signal(number)
        started = time.monotonic()
        assert runner.wait() == code
    assert time.monotonic() - started < 30
    assert 1 <= finished(out) <= 32
    assert cluster.wait_until(lambda: not cluster.workers(home) and not cluster.actors(home))
    resumed = subprocess.run(command("resume", str(out)), check=False, capture_output=True, text=True, cwd=ROOT)
    assert resumed.returncode == 1, resumed.stderr
    assert table(out) == local
