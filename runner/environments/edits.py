"""What a candidate makes of the files of its release: the same for a venv and an image."""

from collections.abc import Callable
from pathlib import Path

from runner import patches
from runner.candidates import checkout_files, decoded, digest_of, encoded
from runner.errors import UsageError
from runner.model import Candidate, CandidateKind


def edits(candidate: Candidate, read: Callable[[str], bytes | None]) -> dict[str, bytes | None]:
    """Every file that differs from the release, by paths such as `vllm/config.py`; None for one that is gone.

    `read` gives a file of the release, None where it has none. UsageError where a patch does not apply, and where what
    is read is not what the run began with.
    """
    path = Path(candidate.path)
    try:
        if candidate.kind is CandidateKind.CHECKOUT:
            contents = {name: file.read_bytes() for name, file in checkout_files(path).items()}
            _require(candidate, digest_of(contents.items()))
            return {name: data for name, data in contents.items() if read(name) != data}
        data = path.read_bytes()
        _require(candidate, digest_of([("", data)]))
    except OSError as error:
        raise UsageError(f"--candidate {candidate.name}: {path}: cannot be read ({error.strerror})") from None

    def text(name: str) -> str | None:
        found = read(name)
        return None if found is None else decoded(found)

    try:
        after = patches.apply(patches.parse(decoded(data)), text)
    except patches.BadPatch as error:
        raise UsageError(
            f"--candidate {candidate.name}: {path} does not fit vLLM {candidate.over}: {error}; "
            f"name the release that it is for: --candidate {candidate.name}={path}@RELEASE"
        ) from None
    return {name: None if changed is None else encoded(changed) for name, changed in after.items()}


def _require(candidate: Candidate, digest: str) -> None:
    if digest != candidate.digest:
        raise UsageError(f"--candidate {candidate.name}: {candidate.path} has changed since the run began: run again")
