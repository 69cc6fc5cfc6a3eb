"""The axes a matrix has, the labels of their values, and the other names that people use for an arch."""

import re
from collections.abc import Mapping

from runner.model import AxisValue

AxisValues = Mapping[str, tuple[AxisValue, ...]]
"""The axes of a matrix in the order of its file, each with its values."""

NEUTRAL: dict[str, AxisValue] = {
    "kv_dtype": "auto",
    "head_size": "load",
    "group_size": "load",
    "page_size": "load",
    "cudagraph": "auto",
    "draft": "ngram",
    "case": "metadata",
}
"""The axes that a matrix may leave out, and what a cell has then: what vLLM or the load says by itself.

These values do not show in ids, so that an id says what is special about its cell and no more.
"""
AXES = ("vllm", "backend", "arch", "hybrid", "spec_k", "chunk", "load", *NEUTRAL)
ALWAYS = tuple(axis for axis in AXES if axis not in NEUTRAL)
"""The axes that every cell has."""
COUNTS = frozenset({"spec_k", "chunk"})
"""Axes whose values are whole numbers, which can be compared with < and >."""
RELEASES = "vllm"
"""The axis whose values are releases, which can be compared too: `<0.31` means every release before 0.31.0."""

LABEL = r"^[a-z0-9_.]+$"
"""What a label may hold, so that an id is safe in a shell, a file name and the name of a CI job."""

ID = re.compile(r"(?=.*[^.])[a-z0-9_.]+(-[a-z0-9_.]+)*")
"""What the id of a cell looks like: labels, joined; never a path."""

PRODUCTS = {
    "a100": "sm80",
    "a30": "sm80",
    "a10": "sm86",
    "a40": "sm86",
    "rtx3090": "sm86",
    "ada": "sm89",
    "l4": "sm89",
    "l40": "sm89",
    "l40s": "sm89",
    "rtx4090": "sm89",
    "gh200": "sm90",
    "h20": "sm90",
    "h100": "sm90",
    "h200": "sm90",
    "hopper": "sm90",
    "b200": "sm100",
    "gb200": "sm100",
    "b300": "sm103",
    "gb300": "sm103",
    "rtx5090": "sm120",
    "gb10": "sm121",
}
"""The arch of a GPU that people know by its name."""

# 10.0, 10.0a and 12.0f as in FlashInfer's arch lists, sm_90 and sm90a as nvcc writes them.
_CAPABILITY = re.compile(r"(?:sm_?)?(?P<major>\d{1,2})(?:\.|(?<=\d))(?P<minor>\d)[af]?")


def release(value: object) -> tuple[int, ...] | None:
    """The numbers of a release without trailing zeros, so that 0.31 and 0.31.0 are equal; None where it is none."""
    if not isinstance(value, str) or not re.fullmatch(r"\d{1,6}(\.\d{1,6})*", value):
        return None
    numbers = [int(number) for number in value.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def label(axis: str, value: AxisValue) -> str:
    """The part of a cell's id that stands for this value, and the word that a filter knows it by."""
    match axis:
        case "hybrid":
            return f"hybrid_{value}"
        case "spec_k":
            return f"k{value}"
        case "chunk":
            return f"c{value}"
        case "kv_dtype":
            return f"kv_{value}"
        case "head_size":
            return f"head{value}"
        case "group_size":
            return f"group{value}"
        case "page_size":
            return f"page{value}"
        case "cudagraph":
            return f"cudagraph_{value}"
        case _:
            return str(value)


def in_id(axis: str, value: AxisValue) -> bool:
    """Whether this value's label is part of the id."""
    return axis not in NEUTRAL or value != NEUTRAL[axis]


def arch_alias(word: str) -> str | None:
    """The arch that people also call `word`: `10.0`, `10.0a`, `sm_100` and `b200` are sm100."""
    if word in PRODUCTS:
        return PRODUCTS[word]
    if ("." in word or word.startswith("sm")) and (found := _CAPABILITY.fullmatch(word)):
        return f"sm{found['major']}{found['minor']}"
    return None


def lacking(axes: Mapping[str, AxisValue]) -> str:
    """The first axis that a cell in a file should have and has not; empty where it has all."""
    return next((axis for axis in ALWAYS if axis not in axes), "")
