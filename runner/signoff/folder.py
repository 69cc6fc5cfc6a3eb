"""Whether a folder can be a bundle at all, said before a byte of it is read: it may be anybody's, and of any size."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

MAX_ENTRIES = 2_000
MAX_DEPTH = 4
"""inputs/runs/1/results.json."""
MAX_BYTES = 1 << 30
"""Of all files together. A hundred thousand cells are a third of it."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)


def odd(folder: Path) -> Iterator[str]:
    """What no bundle has, the first of each kind of it; looks at no more entries than a bundle may have."""
    size = 0
    for number, (entry, name, depth) in enumerate(_walk(folder), 1):
        if number > MAX_ENTRIES:
            yield f"it holds more than {MAX_ENTRIES:,} files and directories, and no bundle does"
            return
        if not _NAME.fullmatch(entry.name):
            yield f"{name}: no file of a bundle has such a name"
            return
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            if depth == MAX_DEPTH:
                yield f"{name}: directories are nested deeper than in a bundle"
                return
            with os.scandir(entry.path) as inside:
                if next(inside, None) is None:
                    yield f"{name}: an empty directory was added"
        elif not stat.S_ISREG(found.st_mode):
            yield f"{name}: is no plain file"
        else:
            size += found.st_size
            if size > MAX_BYTES:
                yield f"{name}: the files are larger than {MAX_BYTES >> 30} GiB together, and no bundle is"
                return


def _walk(folder: Path) -> Iterator[tuple[os.DirEntry[str], str, int]]:
    """Each entry with how a message calls it and its depth, from 1; goes into no link."""
    waiting = [(folder, 1)]
    while waiting:
        where, depth = waiting.pop()
        with os.scandir(where) as entries:
            for entry in entries:
                yield entry, repr(os.path.relpath(entry.path, folder)), depth
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((Path(entry.path), depth + 1))
