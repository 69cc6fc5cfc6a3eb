"""Whether a bundle is what `runner signoff` wrote, and still holds: offline.

What can be checked by the bundle alone always is. What whoever verifies knows from elsewhere is held against it; and
what was not given is said, since nobody has looked at it then.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from runner import __version__, results
from runner.errors import MachineError, RunnerError, UsageError
from runner.signoff import bundle, inputs
from runner.signoff.attestation import Attestation, NotAttestedError
from runner.signoff.folder import odd
from runner.signoff.judge import CLOCKS_DIFFER, Decision, Judgement

_ORDER = (Decision.GO, Decision.WITH_WAIVERS, Decision.NO_GO)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """What is wrong with a bundle, nothing where it holds; what it decided, empty where that cannot be said."""

    findings: tuple[str, ...]
    decision: str
    digest: str
    about: str = ""
    """Which vLLM by which policy, empty where that cannot be said."""
    unchecked: tuple[str, ...] = ()
    """What is the bundle's own word, since nothing was given to hold it against."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """A file that an input of the bundle must be, byte for byte."""

    title: str
    """What messages call it: its path, or the digest alone."""
    sha256: str
    """In hex."""
    name: str = ""
    """Of a policy, what a sign-off by this file calls it; empty where only a digest was given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """What whoever verifies knows of a bundle from elsewhere; None or empty where nothing is expected."""

    digest: str = ""
    vllm: str = ""
    matrix: Given | None = None
    policy: Given | None = None
    waivers: Given | None = None
    no_waivers: bool = False
    since: Given | None = None
    max_age_days: int | None = None
    attestation: Attestation | None = None


NOTHING = Expected()


def verify(folder: Path, *, now: datetime, expected: Expected = NOTHING) -> Verified:
    """Check a bundle; UsageError where there is none, MachineError where it cannot be read."""
    if not folder.is_dir() or not ((folder / bundle.SUMS).exists() or (folder / bundle.INPUTS).exists()):
        raise UsageError(f"{folder}: is no bundle: name the directory that `runner signoff` wrote")
    try:
        return _verify(folder, now, expected)
    except OSError as error:
        raise MachineError(f"{error.filename}: cannot be read ({error.strerror}): verify where it can") from None


def _verify(folder: Path, now: datetime, expected: Expected) -> Verified:
    if found := [*odd(folder)]:
        return Verified(findings=tuple(found), decision="", digest="")
    sums, there = _bytes(folder / bundle.SUMS), bundle.digests(folder)
    digest = f"sha256:{hashlib.sha256(sums).hexdigest()}"
    if expected.digest and expected.digest.lower() != digest:
        found.append(f"the bundle is {digest}, not {expected.digest}: it is another one, or was made anew")
    if not sums:
        found.append(f"{bundle.SUMS}: was removed")
    found += _compared(sums, there)
    if found:
        return Verified(findings=tuple(found), decision="", digest=digest)
    found += _attested(folder, expected)
    try:
        made = bundle.derive(folder)
        found += _derived(folder, made)
        found += _foreign(made, expected)
        found += _stale(folder, made, now, expected.max_age_days)
    except RunnerError as error:
        found.append(f"its inputs cannot be judged: {error}")
        return Verified(findings=tuple(found), decision="", digest=digest)
    request = made.inputs.request
    return Verified(
        findings=tuple(found),
        decision=made.judgement.decision.value,
        digest=digest,
        about=f"vLLM {request.vllm} by policy {request.policy}",
        unchecked=tuple(_unchecked(made, expected)),
    )


def _foreign(made: bundle.Derived, expected: Expected) -> Iterator[str]:
    """Whether it is about something else, or was decided by other rules, than whoever verifies has in mind."""
    vllm = made.inputs.request.vllm
    if expected.vllm and vllm != expected.vllm:
        yield f"it is about vLLM {vllm}, not {expected.vllm}"
    digests, own = made.inputs.digests, made.inputs.request
    if expected.policy and expected.policy.name not in {"", own.policy}:
        yield f"it says that its policy is called {own.policy!r}, and {expected.policy.title} is not"
    since = f"{inputs.SINCE}/{results.NAME}"
    for what, name, given in (
        ("matrix", inputs.MATRIX, expected.matrix),
        ("policy", inputs.POLICY, expected.policy),
        ("waivers", inputs.WAIVERS, expected.waivers),
        ("results of the run before", since, expected.since),
    ):
        if given and name not in digests:
            yield f"it was decided without {what}, not with {given.title}"
        elif given and digests[name] != given.sha256:
            article = "other" if what.endswith("s") or "results" in what else "another"
            yield f"it was decided by {article} {what} than {given.title}: see its {bundle.INPUTS}/{name}"
    if expected.no_waivers and inputs.WAIVERS in digests:
        yield f"it was decided with waivers: see its {bundle.INPUTS}/{inputs.WAIVERS}"


def _attested(folder: Path, expected: Expected) -> Iterator[str]:
    if expected.attestation is None:
        return
    try:
        expected.attestation.check(_bytes(folder / bundle.SUMS), _bytes(folder / bundle.STATEMENT))
    except NotAttestedError as error:
        yield f"{expected.attestation.file}: {error}"


def _unchecked(made: bundle.Derived, expected: Expected) -> Iterator[str]:
    """What the bundle alone says, with the options that hold it against something."""
    if not expected.vllm:
        yield "that it is about what is to ship: give --vllm RELEASE"
    if not expected.policy:
        yield "its policy: give --policy NAME, or a file"
    if not expected.matrix:
        yield "its matrix, with the rules and the known issues: give --matrix FILE"
    if not (expected.waivers or expected.no_waivers):
        yield "its waivers: give --waivers FILE, or --no-waivers"
    if made.inputs.request.since and not expected.since:
        yield "the results that it is compared with: give --since RUN"
    if not (expected.attestation or expected.digest):
        yield "who made it, and the results themselves: give --attestation FILE --signer WHO, or --digest"


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _compared(sums: bytes, there: dict[str, str]) -> Iterator[str]:
    """How the files differ from SHA256SUMS."""
    if sums == bundle.sums_of(there):
        return
    lines = [line.split("  ", 1) for line in sums.decode("utf-8", "backslashreplace").split("\n")]
    said = {line[1]: line[0] for line in lines if len(line) == 2}
    explained = False
    for name in sorted(said.keys() | there.keys()):
        if name not in there:
            explained = True
            yield f"{name!r}: was removed"
        elif name not in said:
            explained = True
            yield f"{name!r}: was added"
        elif said[name] != there[name]:
            explained = True
            yield f"{name!r}: was changed"
    if not explained:
        yield f"{bundle.SUMS}: was changed"


def _derived(folder: Path, made: bundle.Derived) -> Iterator[str]:
    """What of the bundle does not follow from its inputs."""
    version = made.inputs.request.attnmatrix
    if version != __version__:
        yield f"it was made by attnmatrix {version!r}, and this is {__version__}: verify it with that version"
        return
    expected = made.files.keys() | {bundle.SUMS} | {f"{bundle.INPUTS}/{name}" for name in made.inputs.expected_files}
    there = set(bundle.files(folder))
    for name in sorted(there - expected):
        yield f"{name!r}: is no part of a bundle"
    for name in sorted(expected - there):
        yield f"{name!r}: is missing"
    for name, data in made.files.items():
        if name in there and (folder / name).read_bytes() != data:
            yield f"{name!r}: is not what the inputs give"


def _stale(folder: Path, made: bundle.Derived, now: datetime, max_age_days: int | None) -> Iterator[str]:
    """Whether the decision is from the future, too old, or would be worse today."""
    at = made.inputs.request.at
    if at > now + CLOCKS_DIFFER:
        yield f"stale: it says that it was made on {at:%Y-%m-%d %H:%M}, which is after now ({now:%Y-%m-%d %H:%M})"
        return
    if max_age_days is not None and now - at > timedelta(days=max_age_days):
        yield f"stale: it was made on {at:%Y-%m-%d}, more than {max_age_days} days ago"
    if made.judgement.decision is Decision.NO_GO:
        return
    _, today = bundle.decide(folder, at=max(at, now))
    if _ORDER.index(today.decision) > _ORDER.index(made.judgement.decision):
        yield f"stale: as of {now:%Y-%m-%d} it would be {today.decision}, not {made.judgement.decision} ({_why(today)})"


def _why(judgement: Judgement) -> str:
    gap = next((gap for one in judgement.cells for gap in one.open), None)
    return f"{gap.name}: {gap.detail}" if gap else "a waiver counts that did not"
