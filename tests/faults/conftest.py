"""The fault tests use the daemon and the image of the contract tests."""

from tests.contract.conftest import docker_client, image

__all__ = ["docker_client", "image"]
