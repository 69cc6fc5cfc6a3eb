"""A package that vLLM imports and this environment does not have: nothing that would be said about vLLM."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from cases.releases import UnknownRelease, version_of
from cases.verdicts import MachineTrouble

OURS = ("vllm", "cases", "attnmatrix_vllm")
"""What an environment is of: a module of these that is missing is somebody's fault."""


@contextmanager
def as_infra(vllm: str) -> Iterator[None]:
    """MachineTrouble where a release (a value of the axis `vllm`) imports a package that is not installed.

    A candidate that does may as well be wrong about the name: there it stays what it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package in OURS or not _is_release(vllm) or find_spec(package) is not None:
            raise
        raise MachineTrouble(
            f"vLLM imports the package {package!r}, which this environment does not have ({error}): "
            "add it to the lock of this release under containers/locks, or leave the cell out by a rule of the matrix"
        ) from error


def _is_release(vllm: str) -> bool:
    try:
        version_of(vllm)
    except UnknownRelease:
        return False
    return vllm.replace(".", "").isdigit()
