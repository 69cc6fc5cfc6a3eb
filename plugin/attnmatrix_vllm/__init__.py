"""Presents a GPU arch to vLLM on a machine without a GPU, through vLLM's out-of-tree platform interface.

Imports nothing of vLLM: this module is loaded while vLLM is still finding out where it runs.
"""

import os

__version__ = "0.2.0"

CPU = "cpu"
_presented = CPU


def present(arch: str) -> None:
    """Let vLLM see `arch` (`sm90`, `sm103`, `sm120`, or `cpu` for its own CPU platform) from now on.

    vLLM caches what it asks about a device for the life of a process, so call this once, before anything of vLLM ran.
    """
    global _presented
    if arch != CPU:
        capability_of(arch)
    _presented = arch


def presented() -> str:
    """The arch that vLLM sees."""
    return _presented


def capability_of(arch: str) -> tuple[int, int]:
    """CUDA compute capability (major, minor) of an arch name: the last digit of `sm103` is the minor version."""
    digits = arch.removeprefix("sm")
    if not (arch.startswith("sm") and digits.isdigit() and len(digits) >= 2):
        raise ValueError(f"{arch!r} is no arch: expected 'cpu' or a name such as 'sm90' or 'sm120'")
    return int(digits[:-1]), int(digits[-1])


def platform() -> str | None:
    """vLLM's entry point: the platform class to use, or None on a machine whose real device is to be used."""
    if os.environ.get("ATTNMATRIX_EVIDENCE") == "device":
        return None
    return "attnmatrix_vllm.presented.PresentedPlatform"
