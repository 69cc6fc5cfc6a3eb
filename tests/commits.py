"""Git repositories that tests make."""

import subprocess
from pathlib import Path


def git(folder: Path, *words: str) -> str:
    """Run git there; what it prints."""
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    command = ["git", "-C", str(folder), *settings, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def commit(folder: Path) -> None:
    """All that is there, even where nothing changed."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "x")
