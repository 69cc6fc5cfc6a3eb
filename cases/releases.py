"""Which releases of vLLM the cases serve, and by which era of its Python API. Pure: imports nothing of vLLM.

An era is a run of releases in which vLLM names and calls the same way what the cases use of it; the file of that name
in `cases/vllm_api/` says what was different from the era after it.
"""

import re

Version = tuple[int, int, int]

ERAS: tuple[tuple[Version, str], ...] = (
    ((0, 10, 0), "era_0_10_0"),
    ((0, 10, 1), "era_0_10_1"),
    ((0, 11, 0), "era_0_11"),
    ((0, 14, 0), "era_0_14"),
    ((0, 29, 0), "era_0_29"),
)
"""The first release of each era, oldest first; an era ends where the next begins."""

LAST: Version = (0, 33, 0)
"""The newest release that was tried. A later one is served by the last era if that era's names and calls still hold."""

SERVED = f"{'.'.join(map(str, ERAS[0][0]))} to {'.'.join(map(str, LAST))}"


class UnknownRelease(Exception):
    """The cases do not know this release's API: nothing that they would say about it would be a verdict."""


def version_of(text: str) -> Version:
    """The release in a version such as `0.10.2`, `0.32.0+cpu`, `0.10.1.1.post2` or `0.32.1.dev5+g1234`."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    if not found:
        raise UnknownRelease(f"{text!r} is no version of vLLM; the cases serve the releases {SERVED}")
    return int(found[1]), int(found[2]), int(found[3] or 0)


def era_of(text: str) -> str:
    """The era that serves a version, by the name of its module; UnknownRelease before the first."""
    version = version_of(text)
    if version < ERAS[0][0]:
        raise UnknownRelease(f"vLLM {text} is older than the releases that the cases serve, {SERVED}")
    return next(name for first, name in reversed(ERAS) if first <= version)


def unknown(text: str, error: Exception) -> UnknownRelease:
    """What to raise where the era of a version asked vLLM for something that it does not have."""
    newer = version_of(text)[:2] > LAST[:2]
    about = f"is newer than the releases that the cases serve, {SERVED}" if newer else "cannot be driven here"
    return UnknownRelease(f"vLLM {text} {about}: {era_of(text)} of cases/vllm_api met {type(error).__name__}: {error}")
