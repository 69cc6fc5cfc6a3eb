"""Whether a pull request changes documentation alone, which costs no cells.

The list is of what costs nothing; all else does. What is compared is the test merge commit and its first parent, the
branch that it is for (docs.github.com, "Events that trigger workflows", `pull_request`: GITHUB_SHA is the last merge
commit of the pull request merged into the base branch). Who cannot tell, as in a checkout of one commit, says nothing.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from runner.reports.text import count, one_line

LICENCES = frozenset({"LICENSE"})
FOLDER, SUFFIX = "docs", ".md"
"""No cell reads what is below this folder, nor a page at the top of the repository."""
MERGE = 2
"""Parents of a test merge commit."""
PATIENCE_S = 60.0


def is_free(path: str) -> bool:
    """Whether no cell depends on this file."""
    parts = PurePosixPath(path).parts
    if len(parts) == 1:
        return path in LICENCES or path.endswith(SUFFIX)
    return parts[0] == FOLDER and ".." not in parts


def only_docs(checkout: Path) -> str:
    """Why no cell has to run, in words; empty where one may have to, or where it cannot be told."""
    commits = _git(checkout, "rev-list", "--parents", "--max-count=1", "HEAD")
    if len(commits.split()) != 1 + MERGE:
        return ""
    # As trees, without renames: a file that moves is one that goes and one that comes.
    told = _git(checkout, "diff-tree", "-r", "-z", "--no-renames", "--name-only", "HEAD^1", "HEAD")
    paths = [path for path in told.split("\0") if path]
    return because(paths) if paths and all(map(is_free, paths)) else ""


def because(paths: Sequence[str]) -> str:
    """The reason, with the first of the files."""
    more = f" and {count(len(paths) - 1, 'other file')}" if len(paths) > 1 else ""
    return f"only documentation changed, on which no cell depends: {one_line(min(paths), 120)}{more}"


def _git(checkout: Path, *words: str) -> str:
    """What git prints; empty where it fails."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "-C", str(checkout), *words]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False, env=plain)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
