"""The attention backends that the installed vLLM has, under the names of the axis `backend`."""

from importlib import import_module

from vllm.version import __version__

from cases.verdicts import Wrong

REGISTRIES = (
    ("vllm.v1.attention.backends.registry", "AttentionBackendEnum"),
    ("vllm.attention.backends.registry", "AttentionBackendEnum"),  # until 0.13
    ("vllm.attention.backends.registry", "_Backend"),  # until 0.11
    ("vllm.platforms.interface", "_Backend"),  # until 0.10
)
"""As in containers/check.py, which tells the runner before cells run."""


def names() -> list[str]:
    """All that are registered; none where it is not known how."""
    for module, registry in REGISTRIES:
        try:
            found = getattr(import_module(module), registry)
        except (ImportError, AttributeError):
            continue
        return sorted({name.removesuffix("_VLLM_V1").lower() for name in found.__members__})
    return []


def require(backend: str) -> None:
    """Wrong where vLLM has no such backend: nothing is refused, what is asked for does not exist."""
    if (known := names()) and backend not in known:
        raise Wrong(
            f"vLLM {__version__} has no attention backend {backend}; it has {', '.join(known)}: where the release has "
            "none either, correct the axis `backend` of the matrix, or exclude it by a rule"
        )
