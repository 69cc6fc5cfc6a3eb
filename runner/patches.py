"""A unified diff against the vllm package: what it changes, and what the files hold after it. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from unidiff.constants import LINE_TYPE_NO_NEWLINE
from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk as DiffHunk
from unidiff.patch import PatchedFile, PatchSet

PACKAGE = "vllm"


class BadPatch(Exception):
    """The text is no patch of the vllm package, or does not apply; says which file and hunk."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hunk:
    """`old` lines, expected at index `at` of the file, become `new`; each line with its end."""

    header: str
    at: int
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One file: from `source` to `target`, paths such as `vllm/config.py`; empty where it is made or removed."""

    source: str
    target: str
    hunks: tuple[Hunk, ...]
    keeps_source: bool

    @property
    def name(self) -> str:
        return self.target or self.source


@dataclass(frozen=True, kw_only=True, slots=True)
class Patch:
    """The changes to the vllm package, and the paths of a whole repository's diff that are outside of it."""

    changes: tuple[Change, ...]
    left_out: tuple[str, ...]


def parse(text: str) -> Patch:
    """Read a diff as `git diff` or `diff -ru` writes it; BadPatch where it is none, or leaves the folder it is for."""
    try:
        files = PatchSet(text)
    except UnidiffParseError as error:
        raise BadPatch(f"is no unified diff: {error}") from None
    changes, left_out = [], []
    for file in files:
        source = "" if file.is_added_file else _path(file.source_file, file)
        target = "" if file.is_removed_file else _path(file.target_file, file)
        inside = [path.startswith(f"{PACKAGE}/") for path in (source, target) if path]
        if not all(inside):
            left_out.append(target or source)
        elif file.is_binary_file:
            raise BadPatch(f"{target or source} is a binary file: only text can be patched")
        elif "mode 120000" in str(file.patch_info or ""):
            raise BadPatch(f"{target or source} is a link: only files can be patched")
        else:
            hunks = tuple(_hunk(hunk) for hunk in file)
            copied = "copy from" in str(file.patch_info or "")
            changes.append(Change(source=source, target=target, hunks=hunks, keeps_source=copied))
    if not changes:
        outside = f": all of it is outside, such as {left_out[0]}" if left_out else ": it has no file with a hunk"
        raise BadPatch(f"is no unified diff of the package {PACKAGE}/{outside}")
    return Patch(changes=tuple(changes), left_out=tuple(left_out))


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """How a patch fits some files: what they hold afterwards, None where one is gone, and what of it does not apply."""

    after: dict[str, str | None]
    troubles: tuple[str, ...]
    """One for each change that does not apply, with its file and hunk; empty where all of the patch fits."""


def fit(patch: Patch, read: Callable[[str], str | None]) -> Fit:
    """Try every change on the files that `read` gives the text of, None where there is none.

    A hunk may have moved, but its lines must be there to the letter.
    """
    after: dict[str, str | None] = {}
    troubles: list[str] = []

    def now(path: str) -> str | None:
        return after[path] if path in after else read(path)

    for change in patch.changes:
        try:
            text = _changed(change, now)
        except BadPatch as error:
            troubles.append(str(error))
            continue
        if change.source and change.source != change.target and not change.keeps_source:
            after[change.source] = None
        if change.target:
            after[change.target] = text
    return Fit(after=after, troubles=tuple(troubles))


def apply(patch: Patch, read: Callable[[str], str | None]) -> dict[str, str | None]:
    """Every changed file by its path: its text afterwards, or None where it is gone; BadPatch where it does not fit."""
    found = fit(patch, read)
    if found.troubles:
        raise BadPatch(found.troubles[0])
    return found.after


def _changed(change: Change, now: Callable[[str], str | None]) -> str:
    before = now(change.source) if change.source else ""
    if before is None:
        raise BadPatch(f"{change.source} is not there")
    if not change.source and now(change.target):  # an empty file may be filled
        raise BadPatch(f"{change.target} is there already, and the patch makes it")
    return _applied(change, before)


def _path(written: str, file: PatchedFile) -> str:
    """Without the first folder, which git calls a/ and b/; one that could lead out of the package is refused."""
    parts = written.split("/")
    if written.startswith("/") or "\\" in written or {"..", ".", ""} & set(parts):
        raise BadPatch(f"the path {written!r} leads out of the package {PACKAGE}/")
    of_git = file.source_file.startswith(("a/", "/dev/null")) and file.target_file.startswith(("b/", "/dev/null"))
    named = parts[0] == PACKAGE and parts[1:2] != [PACKAGE]  # a checkout may be called vllm, too
    return "/".join(parts if named and not of_git else parts[1:])


def _hunk(hunk: DiffHunk) -> Hunk:
    old: list[str] = []
    new: list[str] = []
    last: tuple[list[str], ...] = ()
    for line in hunk:
        if line.line_type == LINE_TYPE_NO_NEWLINE:  # the line before has no end
            for lines in last:
                lines[-1] = lines[-1].removesuffix("\n")
        elif last := {" ": (old, new), "-": (old,), "+": (new,)}.get(line.line_type, ()):
            for lines in last:
                lines.append(line.value)
    header = f"@@ -{hunk.source_start},{hunk.source_length} +{hunk.target_start},{hunk.target_length} @@"
    # Lines are counted from 1; where none are taken out, the line named is the one before.
    at = hunk.source_start - (1 if hunk.source_length else 0)
    return Hunk(header=header, at=at, old=tuple(old), new=tuple(new))


def _applied(change: Change, before: str) -> str:
    lines = _lines(before)
    made: list[str] = []
    done = 0  # lines of `lines` that are in `made`
    drift = 0
    for number, hunk in enumerate(change.hunks, 1):
        at = _find(lines, hunk, hunk.at + drift, done)
        if at is None:
            raise BadPatch(f"hunk {number} of {change.name}, {hunk.header}, does not apply: {_why(lines, hunk, drift)}")
        made += [*lines[done:at], *hunk.new]
        done = at + len(hunk.old)
        drift = at - hunk.at
    return "".join([*made, *lines[done:]])


def _lines(text: str) -> list[str]:
    """With their ends; only a newline ends a line, as in a patch."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1].removesuffix("\n")
    return [line for line in lines if line]


def _find(lines: list[str], hunk: Hunk, wanted: int, first: int) -> int | None:
    """Where the hunk's old lines are, as near as can be to where they are said to be, and not before `first`."""
    last = len(lines) - len(hunk.old)
    for at in sorted(range(first, last + 1), key=lambda at: abs(at - wanted)):
        if lines[at : at + len(hunk.old)] == list(hunk.old):
            return at
    return None


def _why(lines: list[str], hunk: Hunk, drift: int) -> str:
    for number, line in enumerate(hunk.old, hunk.at + drift):
        found = lines[number] if 0 <= number < len(lines) else None
        if found != line:
            there = "the file has ended" if found is None else f"there is {found.strip()!r}"
            return f"line {number + 1} should be {line.strip()!r}, and {there}"
    return "its lines are not where the hunk before it ends"
