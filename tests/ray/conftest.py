"""Every test here needs Ray."""

from pathlib import Path

import pytest

from tests.ray import cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.ray)


@pytest.fixture(scope="session", autouse=True)
def _ray() -> None:
    cluster.required()
