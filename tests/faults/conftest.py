"""The fault tests use the image of the contract tests."""

from tests.contract.conftest import image

__all__ = ["image"]
