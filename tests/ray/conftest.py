"""Every test here needs Ray, and nobody else's Docker daemon: a node without one runs cells as processes."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.ray)


@pytest.fixture(scope="session", autouse=True)
def _no_daemon() -> Iterator[None]:
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = "unix:///there/is/none.sock"
    yield
    os.environ.pop("DOCKER_HOST") if before is None else os.environ.update(DOCKER_HOST=before)


@pytest.fixture(scope="session", autouse=True)
def _ray() -> None:
    pytest.importorskip("ray")
