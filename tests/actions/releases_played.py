"""`gh release upload`, and the files of releases.

Sources: cli.github.com/manual/gh_release_upload, and exit code 4 of "gh help exit-codes"; docs.github.com/rest, "Upload
a release asset": it takes `contents: write`, and a file of the same name is refused.
"""

import argparse
import base64
import json
import os
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.actions.harness import GitHub

GH = """#!/usr/bin/env bash
exec "{python}" "{itself}" "$@"
"""


def make(folder: Path) -> None:
    """Write a `gh` into a folder that is on the PATH."""
    command = folder / "gh"
    command.write_text(GH.format(python=sys.executable, itself=Path(__file__).resolve()))
    command.chmod(0o755)


def upload(github: "GitHub", path: str, authorization: str, given: dict[str, Any]) -> tuple[int, Any] | None:
    """None where the path is of something else."""
    from tests.actions import api_asked

    match = re.fullmatch(rf"/repos/{github.repository}/releases/([^/]+)/assets", path)
    if match is None:
        return None
    if not api_asked.may(github, authorization, "contents", "write"):
        return api_asked.NO
    if match[1] not in github.releases:
        return 404, {"message": "release not found"}
    files = github.releases[match[1]]
    if given["name"] in files:
        return 422, {"message": "asset under the same name already exists"}
    files[given["name"]] = base64.b64decode(given["data"])
    return 201, {"name": given["name"]}


def main(arguments: list[str]) -> int:
    """What `gh` does with these arguments."""
    if arguments[:2] != ["release", "upload"]:
        sys.exit(f"played: unknown command {arguments[:2]}")
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--repo", "-R", required=True)  # there is no checkout that would say which
    parser.add_argument("tag")
    parser.add_argument("files", nargs="+", type=Path)
    asked = parser.parse_args(arguments[2:])
    if not (token := os.environ.get("GH_TOKEN") or os.environ.get("GITHUB_TOKEN")):
        print("gh: To use GitHub CLI in a GitHub Actions workflow, set the GH_TOKEN environment variable.")
        return 4
    for file in asked.files:
        body = json.dumps({"name": file.name, "data": base64.b64encode(file.read_bytes()).decode()}).encode()
        address = f"{os.environ['GITHUB_API_URL']}/repos/{asked.repo}/releases/{asked.tag}/assets"
        request = urllib.request.Request(address, body, {"Authorization": f"Bearer {token}"})
        try:
            urllib.request.urlopen(request).close()
        except urllib.error.HTTPError as error:
            print(json.load(error)["message"], file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
