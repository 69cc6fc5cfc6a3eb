"""`--candidate NAME=PATH`: a vLLM that is no release, as a value of the vllm axis for one run."""

import hashlib
import re
import shlex
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from runner import checkouts, patches
from runner.axes import AXES, LABEL, arch_alias, label
from runner.conditions import Condition, Selector
from runner.errors import UsageError
from runner.expand import by_default
from runner.matrix import Matrix
from runner.model import AxisValue, Candidate, CandidateKind
from runner.nearest import quoted
from runner.patches import PACKAGE

FILE = "candidates.json"
FOLDER = "candidates"
MAX_PATCH_BYTES = 64 << 20

_CANDIDATES = TypeAdapter(tuple[Candidate, ...])
_RECORDED = re.compile(r"(patch|checkout|wheel) (.+) ([0-9a-f]{16}) over (\S+)")
_INSTALLED = re.compile(
    rf"""(?<=")[^"\n]*/site-packages/(?={PACKAGE}/)|(?<![^\s'"(=:,])/[^\s'"()]*/site-packages/(?={PACKAGE}/)"""
)
"""The folder of packages in the path of a file of vLLM, as in a traceback or an ImportError."""


Choose = Callable[[Matrix, str, CandidateKind, Path], tuple[str, str]]
"""Gives the release that a candidate is over, by its name, kind and path, and why it is this one."""


def default_release(chart: Matrix) -> str:
    """The release that a run takes."""
    releases = [str(value) for value in by_default(chart)["vllm"] if not chart.environments[str(value)].candidate]
    return releases[0] if releases else next(iter(chart.environments))


def take_default(chart: Matrix, *_: object) -> tuple[str, str]:
    """Chooses the release that a run takes."""
    return default_release(chart), ""


def joined(chart: Matrix, texts: Sequence[str], choose: Choose = take_default) -> Matrix:
    """The matrix with the candidates that a command line names; UsageError for one that cannot be used.

    `choose` is asked where the command line does not say which release one is over.
    """
    for text in texts:
        chart = join(chart, (read(text, chart, choose),))
    return chart


def join(chart: Matrix, candidates: Iterable[Candidate]) -> Matrix:
    """The matrix with these values of the vllm axis, which a run takes unless it asks for others.

    A rule, and an expected refusal, hold for a candidate where they hold for its release. A known issue does not:
    whether it is still there is what the author of a candidate wants to know.
    """
    new = tuple(candidates)
    if not new:
        return chart
    names = [candidate.name for candidate in new]
    earlier = [name for name, spec in chart.environments.items() if spec.candidate]
    added = {c.name: replace(chart.environments[c.over], candidate=c) for c in new}
    return replace(
        chart,
        axes={**chart.axes, "vllm": (*chart.axes["vllm"], *names)},
        defaults=Selector({**chart.defaults.conditions, "vllm": Condition("=", (*earlier, *names))}),
        environments={**chart.environments, **added},
        rules=tuple(replace(rule, selector=_as_over(rule.selector, new)) for rule in chart.rules),
        expect=tuple(replace(entry, selector=_as_over(entry.selector, new)) for entry in chart.expect),
        known=tuple(replace(entry, selector=_without(entry.selector, names)) for entry in chart.known),
    )


def read(text: str, chart: Matrix, choose: Choose = take_default) -> Candidate:
    """One candidate of the command line; UsageError where its name, its path or what is there cannot be used."""
    name, given, rest = text.partition("=")
    if not (given and name and rest):
        raise UsageError(f"malformed --candidate {quoted(text)}: write NAME=PATH or NAME=PATH@RELEASE")
    _check_name(name, chart)
    path, over = _split(rest, chart)
    if over and chart.environments[over].candidate:
        raise UsageError(f"--candidate {name}: {over} is a candidate itself: a candidate is over a release")
    kind, digest = _examine(Path(path), name)
    why = ""
    if not over:
        over, why = choose(chart, name, kind, Path(path))
    return Candidate(name=name, kind=kind, path=path, over=over, digest=digest, why=why)


def keep(chart: Matrix, directory: Path) -> Matrix:
    """Write into a run directory what shows its candidates again; gives the matrix that names what was written."""
    environments = dict(chart.environments)
    for name, spec in chart.environments.items():
        if spec.candidate and spec.candidate.kind is CandidateKind.PATCH:
            copy = directory / FOLDER / f"{name}.patch"
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(spec.candidate.path, copy)
            environments[name] = replace(spec, candidate=replace(spec.candidate, path=str(copy)))
    if kept := tuple(spec.candidate for spec in environments.values() if spec.candidate):
        (directory / FILE).write_bytes(to_json(kept))
    return replace(chart, environments=environments)


def to_json(candidates: tuple[Candidate, ...]) -> bytes:
    """The bytes of candidates.json."""
    return _CANDIDATES.dump_json(candidates, indent=1)


def kept(directory: Path) -> tuple[Candidate, ...]:
    """The candidates of the run in this directory."""
    try:
        return _CANDIDATES.validate_json((directory / FILE).read_bytes())
    except FileNotFoundError:
        return ()
    except (OSError, ValidationError) as error:
        raise UsageError(f"{directory / FILE}: cannot be read: {error}") from None


def notes(chart: Matrix) -> Iterator[str]:
    """What a run says of its candidates: what they are, and what of them does not count."""
    for name, spec in chart.environments.items():
        if spec.candidate is None:
            continue
        left_out: tuple[str, ...] = ()
        if spec.candidate.kind is CandidateKind.PATCH:
            left_out = patches.parse(decoded(Path(spec.candidate.path).read_bytes())).left_out
        outside = f"; not of {PACKAGE}/, so left out: {', '.join(left_out)}" if left_out else ""
        why = f", {spec.candidate.why}" if spec.candidate.why else ""
        yield f"candidate {name}: {spec.candidate}{why}{outside}"


def settled(chart: Matrix) -> tuple[str, ...]:
    """The candidates as command lines name them, each with its release: no other machine has to look for one."""
    found = (spec.candidate for spec in chart.environments.values() if spec.candidate)
    return tuple(f"{one.name}={one.path}@{one.over}" for one in found)


def option(chart: Matrix, value: AxisValue) -> str:
    """What a command line must say so that this value of the vllm axis is there; empty for a release."""
    spec = chart.environments.get(str(value))
    found = spec.candidate if spec else None
    return f"--candidate {shlex.quote(f'{found.name}={found.path}@{found.over}')} " if found else ""


def recorded(words: str) -> Candidate | None:
    """The candidate that a result names in `environment.candidate`, without its own name; None for a release."""
    found = _RECORDED.fullmatch(words)
    return (
        Candidate(name="", kind=CandidateKind(found[1]), path=found[2], digest=found[3], over=found[4])
        if found
        else None
    )


def as_of_author(text: str, candidate: Candidate | None) -> str:
    """The text with the files of the candidate's environment called what its author calls them.

    That is the file of the checkout, or the path that a patch has.
    """
    if candidate is None:
        return text
    place = f"{candidate.path.rstrip('/')}/" if candidate.kind is CandidateKind.CHECKOUT else ""
    return _INSTALLED.sub(lambda _: place, text)


def digest_of(contents: Iterable[tuple[str, bytes]]) -> str:
    """Sixteen hex digits over named contents."""
    sha = hashlib.sha256()
    for name, data in contents:
        for piece in (name.encode(errors="surrogateescape"), data):
            sha.update(len(piece).to_bytes(8, "big") + piece)
    return sha.hexdigest()[:16]


def file_digest(data: bytes) -> str:
    """Sixteen hex digits over one file: as `sha256sum` has them, so that anybody can tell a patch by them."""
    return hashlib.sha256(data).hexdigest()[:16]


def _check_name(name: str, chart: Matrix) -> None:
    if not re.fullmatch(LABEL, name) or len(name) > 32:
        raise UsageError(
            f"--candidate {quoted(name)}: the name becomes part of ids: up to 32 of a-z, 0-9, _ and . may stand in it"
        )
    labels = {label(axis, value): axis for axis, values in chart.axes.items() for value in values}
    if axis := labels.get(name) or ("vllm" if name in chart.environments else None):
        raise UsageError(f"--candidate {name}: the name is taken, it is a value of axis {quoted(axis)}: choose another")
    if name in AXES or arch_alias(name):
        raise UsageError(f"--candidate {name}: a filter would take the name for something else: choose another")


def _split(rest: str, chart: Matrix) -> tuple[str, str]:
    """PATH and the release behind its last @, empty where there is none."""
    path, at, over = rest.rpartition("@")
    if at and path and over in chart.environments:
        return path, over
    if at and path and re.fullmatch(r"[0-9.]+", over) and not Path(rest).exists():
        raise UsageError(f"--candidate: no environment for vllm {over}: the matrix has {', '.join(chart.environments)}")
    return rest, ""


def _examine(path: Path, name: str) -> tuple[CandidateKind, str]:
    """What is at the path, and the digest of it."""
    try:
        if path.is_dir():
            if not (path / PACKAGE / "__init__.py").is_file():
                raise UsageError(f"--candidate {name}: {path} has no {PACKAGE}/__init__.py: name the top of a checkout")
            files = checkouts.files(path)
            return CandidateKind.CHECKOUT, digest_of((key, file.read_bytes()) for key, file in files.items())
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                if f"{PACKAGE}/__init__.py" not in wheel.namelist():
                    raise UsageError(f"--candidate {name}: {path} is a wheel of something else than vLLM")
            with path.open("rb") as file:
                return CandidateKind.WHEEL, hashlib.file_digest(file, "sha256").hexdigest()[:16]
        with path.open("rb") as file:
            data = file.read(MAX_PATCH_BYTES + 1)
        if len(data) > MAX_PATCH_BYTES:
            raise UsageError(f"--candidate {name}: {path} is larger than {MAX_PATCH_BYTES >> 20} MiB: hardly a patch")
        patches.parse(decoded(data))
        return CandidateKind.PATCH, file_digest(data)
    except checkouts.BadCheckout as error:
        raise UsageError(f"--candidate {name}: {error}") from None
    except patches.BadPatch as error:
        raise UsageError(
            f"--candidate {name}: {path} {error}; a candidate is a patch, a checkout (a folder) or a wheel (.whl)"
        ) from None
    except FileNotFoundError:
        raise UsageError(f"--candidate {name}: {path}: no such file or folder") from None
    except zipfile.BadZipFile:
        raise UsageError(f"--candidate {name}: {path} is no wheel: it cannot be opened") from None
    except OSError as error:
        raise UsageError(f"--candidate {name}: {path}: cannot be read ({error.strerror})") from None


def decoded(data: bytes) -> str:
    """Text that becomes the same bytes again with `encoded`, whatever they are."""
    return data.decode(errors="surrogateescape")


def encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _as_over(selector: Selector, candidates: Sequence[Candidate]) -> Selector:
    """The same, and it says of a candidate what it says of the release that this is over."""
    condition = selector.conditions.get("vllm")
    if condition is None:
        return selector
    like = tuple(c.name for c in candidates if (c.over in condition.values))
    return Selector({**selector.conditions, "vllm": replace(condition, values=(*condition.values, *like))})


def _without(selector: Selector, names: Sequence[str]) -> Selector:
    """The same, but not for these values of the vllm axis."""
    condition = selector.conditions.get("vllm", Condition("!=", ()))
    if condition.op != "!=":
        return selector  # it lists those it speaks of
    return Selector({**selector.conditions, "vllm": replace(condition, values=(*condition.values, *names))})
