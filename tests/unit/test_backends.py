"""A backend that a vLLM has not is a mistake of the matrix, told with its place before cells run."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runner import backends, matrix
from runner.errors import MatrixError
from runner.expand import cells
from runner.model import Evidence, Order

HAS = {"flashinfer", "flash_attn", "triton_attn"}


def orders(chart: matrix.Matrix) -> list[Order]:
    return [Order(environment="0.32.0", evidence=Evidence.EMULATED, cells=tuple(cells(chart)))]


def test_backends_that_are_there_are_no_mistake(in_small: Callable[..., Path]) -> None:
    path = in_small()
    backends.require(orders(matrix.load(path)), {"0.32.0": HAS}, path)


def test_a_backend_that_is_not_there_is_told_with_its_place_and_the_nearest_name(in_small: Callable[..., Path]) -> None:
    path = in_small("backend: [flashinfer, flash_attn]", "backend: [flashinfer, flash_atn]")
    with pytest.raises(MatrixError) as found:
        backends.require(orders(matrix.load(path)), {"0.32.0": HAS}, path)
    assert found.value.exit_code == 2
    assert str(found.value).startswith(
        "matrix.yaml:3:25: axis 'backend': vllm 0.32.0 has no attention backend 'flash_atn'"
    )
    assert "did you mean 'flash_attn' or" in str(found.value)
    assert "exclude {backend: flash_atn, vllm: [...]} by a rule" in str(found.value)


def test_all_mistakes_are_told_at_once_with_the_releases_that_lack_them(in_small: Callable[..., Path]) -> None:
    path = in_small()
    (one,) = orders(matrix.load(path))
    both = [one, replace(one, environment="0.33.0")]
    with pytest.raises(MatrixError) as found:
        backends.require(both, {"0.32.0": {"triton_attn"}, "0.33.0": {"flash_attn"}}, path)
    assert len(found.value.mistakes) == 2
    assert "vllm 0.32.0, 0.33.0 has no attention backend 'flashinfer'" in str(found.value)


def test_nothing_is_said_of_an_environment_that_has_not_told(in_small: Callable[..., Path]) -> None:
    path = in_small()
    backends.require(orders(matrix.load(path)), {"0.32.0": ()}, path)
