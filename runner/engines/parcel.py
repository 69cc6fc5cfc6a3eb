"""What a node of a cluster is sent: the runner's sources as one archive, the same bytes for the same contents."""

import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_LEFT_OUT = {"__pycache__", "_bundled"}


@dataclass(frozen=True, slots=True)
class Parcel:
    """An archive and the digest that names it on a node."""

    data: bytes
    digest: str


def pack(contents: Mapping[str, Path]) -> Parcel:
    """Files and folders by the names that they get in the archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, path in sorted(_files(contents)):
            entry = tarfile.TarInfo(name)
            data = path.read_bytes()
            entry.size, entry.mode = len(data), 0o755 if path.stat().st_mode & 0o100 else 0o644
            tar.addfile(entry, io.BytesIO(data))
    archive = buffer.getvalue()
    return Parcel(archive, hashlib.sha256(archive).hexdigest()[:16])


def _files(contents: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    for name, path in contents.items():
        if path.is_file():
            yield name, path
            continue
        for file in path.rglob("*"):
            within = file.relative_to(path)
            if file.is_file() and not _LEFT_OUT & set(within.parts) and file.suffix != ".pyc":
                yield f"{name}/{within}", file
