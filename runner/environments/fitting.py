"""Which release a candidate is over where its command line does not say: the one that it fits, or is nearest to."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from runner import checkouts, patches
from runner.candidates import Choose, decoded, default_release
from runner.environments import sources
from runner.environments.edits import Files
from runner.environments.progress import Say
from runner.errors import EnvironmentBroken, UsageError
from runner.matrix import Matrix
from runner.model import CandidateKind

CLOSEST = 3
"""Releases of which a patch that fits none says why."""
SAMPLE = 400
"""Files by which a checkout that says no version is compared with what is here."""


def chooser(say: Say, *, eager: bool) -> Choose:
    """Chooses a release, and says why. `eager`: also where that takes the download of the release that a run takes."""

    def choose(chart: Matrix, name: str, kind: CandidateKind, path: Path) -> tuple[str, str]:
        match kind:
            case CandidateKind.PATCH:
                return _for_patch(chart, name, path, say, eager=eager)
            case CandidateKind.CHECKOUT:
                return _for_checkout(chart, path)
            case CandidateKind.WHEEL:
                version = path.name.split("-")[1:2]
                found = checkouts.nearest(version[0], releases_of(chart)) if version else None
                return (found, "the nearest to its version") if found else (default_release(chart), "")

    return choose


def releases_of(chart: Matrix) -> list[str]:
    """The releases of the matrix, in the order of its axis."""
    return [str(one) for one in chart.axes["vllm"] if not chart.environments[str(one)].candidate]


def _for_patch(chart: Matrix, name: str, path: Path, say: Say, *, eager: bool) -> tuple[str, str]:
    """The release that a run takes if the patch fits it, else the nearest one that it fits, a newer before an older."""
    patch, first = patches.parse(decoded(path.read_bytes())), default_release(chart)
    troubles: dict[str, tuple[str, ...]] = {}
    unread: list[str] = []
    for release in _nearest_first(releases_of(chart), first):
        files = _files(chart, release, say, download=(eager or release != first) and not unread)
        if files is None and release == first:
            why = f"whether it fits is not known: the files of vllm {first} are not here yet"
            say(f"candidate {name}: over {first}, {why}")
            return first, why
        if files is None:
            unread.append(release)
            continue
        found = patches.fit(patch, lambda file, files=files: _text(files, file))  # type: ignore[misc]
        if not found.troubles and release == first:
            return first, "which it fits"
        if not found.troubles:
            say(f"candidate {name}: fits vllm {release}")
            return release, f"the nearest release that it fits; not {first}: {troubles[first][0]}"
        troubles[release] = found.troubles
        say(f"candidate {name}: does not fit vllm {release}, looking for another release")
    raise UsageError(_fits_none(name, path, len(patch.changes), troubles, unread))


def _fits_none(name: str, path: Path, changes: int, troubles: dict[str, tuple[str, ...]], unread: Sequence[str]) -> str:
    closest = sorted(troubles, key=lambda release: len(troubles[release]))[:CLOSEST]
    lines = [
        f"  {release}: {changes - len(troubles[release])} of its {changes} files fit; {troubles[release][0]}"
        for release in closest
    ]
    others = len(troubles) - len(closest)
    return "\n".join(
        [
            f"--candidate {name}: {path} fits none of the {len(troubles)} releases that were tried. The closest:",
            *lines,
            *([f"  and {others} more"] if others else []),
            *([f"Not tried, for their wheels cannot be had here: {', '.join(unread)}"] if unread else []),
            "Where the diff is of a development branch, give the checkout of that branch in its place: "
            f"--candidate {name}=FOLDER",
        ]
    )


def _for_checkout(chart: Matrix, path: Path) -> tuple[str, str]:
    releases = releases_of(chart)
    said = checkouts.near(path)
    found = checkouts.nearest(said.version, releases) if said else None
    if said and found:
        why = f"the nearest to {said.version}, which {said.source} says"
        return _with_operations(chart, path, found, why, releases)
    here = {release: files for release in releases if (files := sources.at_hand(chart, release))}
    if not here:
        return default_release(chart), "which a run takes: the checkout says no version"
    ours = list(checkouts.files(path).items())
    sample = {name: file.read_bytes() for name, file in ours[:: max(1, len(ours) // SAMPLE)]}
    same = {release: sum(files.read(name) == data for name, data in sample.items()) for release, files in here.items()}
    best = max(reversed(here), key=same.__getitem__)
    why = f"of those that are here the one most like it: of {len(sample)} files {same[best]} are the same"
    return best, why


def _with_operations(chart: Matrix, path: Path, found: str, why: str, releases: Sequence[str]) -> tuple[str, str]:
    """The release, or a newer one that is here and whose compiled code has all that the checkout calls."""
    called = checkouts.operations(file.read_bytes() for file in checkouts.files(path).values() if file.suffix == ".py")
    lacking: dict[str, set[str]] = {}
    for release in releases[releases.index(found) :]:
        if files := sources.at_hand(chart, release):
            lacking[release] = called - checkouts.operations(_python(files))
            if not lacking[release]:
                break
    if not lacking.get(found):
        return found, why
    words = ", ".join(sorted(lacking[found])[:5])
    if complete := next((release for release, absent in lacking.items() if not absent), None):
        return complete, f"the nearest with the compiled operations that it calls; {found} has no {words}"
    return found, f"{why}; but it calls compiled operations that this release has not: {words}"


def _python(files: Files) -> Iterable[bytes]:
    return (files.read(name) or b"" for name in files.digests() if name.endswith(".py"))


def _text(files: Files, name: str) -> str | None:
    found = files.read(name)
    return None if found is None else decoded(found)


def _nearest_first(releases: Sequence[str], first: str) -> list[str]:
    """By the distance on the axis, and of two as near the newer one."""
    at = releases.index(first)
    return sorted(releases, key=lambda release: (abs(releases.index(release) - at), -releases.index(release)))


def _files(chart: Matrix, release: str, say: Say, *, download: bool) -> Files | None:
    try:
        return sources.obtain(chart, release, say) if download else sources.at_hand(chart, release)
    except EnvironmentBroken as error:
        say(str(error).splitlines()[0])
        return None
