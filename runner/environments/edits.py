"""What a candidate makes of the files of its release: the same for a venv and an image."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from runner import checkouts, patches
from runner.candidates import decoded, digest_of, encoded, file_digest
from runner.errors import UsageError
from runner.model import Candidate, CandidateKind


class Files(Protocol):
    """The files of a release's vllm package, by paths such as `vllm/config.py`."""

    def read(self, name: str) -> bytes | None:
        """A file, or None where the release has none of that name."""

    def digests(self) -> Mapping[str, str]:
        """The SHA-256 of every file, in hex; anything else for one that is compiled."""


def edits(candidate: Candidate, release: Files) -> dict[str, bytes | None]:
    """Every file that differs from the release, by its path; None for one that is gone.

    A checkout is the whole package: what it lacks is gone, but for what is compiled or generated. UsageError where a
    patch does not apply, and where what is read is not what the run began with.
    """
    path = Path(candidate.path)
    try:
        if candidate.kind is CandidateKind.CHECKOUT:
            return _of_checkout(candidate, path, release.digests())
        data = path.read_bytes()
        _require(candidate, file_digest(data))
    except OSError as error:
        raise UsageError(f"--candidate {candidate.name}: {path}: cannot be read ({error.strerror})") from None

    def text(name: str) -> str | None:
        found = release.read(name)
        return None if found is None else decoded(found)

    try:
        after = patches.apply(patches.parse(decoded(data)), text)
    except patches.BadPatch as error:
        raise UsageError(
            f"--candidate {candidate.name}: {path} does not fit vLLM {candidate.over}: {error}; name the release that "
            f"it is for, {candidate.name}={path}@RELEASE, or none, and the run looks for one that it fits"
        ) from None
    return {name: None if changed is None else encoded(changed) for name, changed in after.items()}


def _of_checkout(candidate: Candidate, path: Path, release: Mapping[str, str]) -> dict[str, bytes | None]:
    try:
        contents = {name: file.read_bytes() for name, file in checkouts.files(path).items()}
    except checkouts.BadCheckout as error:
        raise UsageError(f"--candidate {candidate.name}: {error}") from None
    _require(candidate, digest_of(contents.items()))
    ignored = decoded(contents.pop(checkouts.IGNORE, b""))
    kept = checkouts.from_wheel(release, ignored)
    gone = dict.fromkeys(name for name in release if name not in contents and name not in kept)
    return gone | {
        name: data for name, data in contents.items() if release.get(name) != hashlib.sha256(data).hexdigest()
    }


def _require(candidate: Candidate, digest: str) -> None:
    if digest != candidate.digest:
        raise UsageError(f"--candidate {candidate.name}: {candidate.path} has changed since the run began: run again")
