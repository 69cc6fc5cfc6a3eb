"""The same cells on both engines: the same results, field by field, but for times and places."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
pytestmark = [pytest.mark.env, pytest.mark.docker, pytest.mark.image, pytest.mark.timeout(1500)]

CELLS = ["c64,c8192", "k0,k3", "solo,small", "sm80,sm90,sm100,cpu", "hybrid_on"]


def results(engine: str, out: Path) -> dict[str, dict[str, Any]]:
    words = [word for each in CELLS for word in ("--filter", each)]
    command = [sys.executable, "-m", "runner", "--engine", engine, "--no-known", "--out", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert done.returncode == 1, done.stderr
    return {row["id"]: without_times_and_places(row) for row in json.loads((out / "results.json").read_text())}


def without_times_and_places(row: dict[str, Any]) -> dict[str, Any]:
    del row["duration_s"], row["ended_at"], row["environment"]["image_digest"], row["environment"]["base_digest"]
    for case in row["cases"]:
        del case["duration_s"]
    return row


def test_local_and_docker_give_equal_results(tmp_path: Path, docker_client: Any) -> None:
    local, docker = results("local", tmp_path / "local"), results("docker", tmp_path / "docker")
    assert local.keys() == docker.keys()
    assert sum(row["state"] != "unsupported" for row in local.values()) > 80
    for id_, row in local.items():
        assert docker[id_] == row, id_
