"""matrix.yaml into a Matrix: every mistake at once, with file, line and column and the nearest name."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pydantic import ValidationError

from runner import matrix_checks, matrix_messages, yaml_source
from runner.axes import RELEASES, release
from runner.conditions import EVERYTHING, Selector
from runner.errors import MatrixError
from runner.matrix_document import Document, json_schema
from runner.model import AxisValue, Candidate, How, Load, State

__all__ = ["EnvironmentSpec", "Expectation", "KnownIssue", "Matrix", "Rule", "Selector", "json_schema", "load"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentSpec:
    """What provides one value of the vllm axis: `packages` laid over a `lock`, a file of the project for pip."""

    lock: str
    packages: tuple[str, ...]
    candidate: Candidate | None = None
    """What is to be found there instead, for a value of the vllm axis that only this run has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """Takes the cells that `selector` matches out of the matrix."""

    selector: Selector
    because: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """vLLM is right to refuse the cells that `selector` matches, for a reason that holds the words of `refusal`."""

    selector: Selector
    refusal: str
    because: str

    def names(self, axes: Mapping[str, AxisValue], reason: str) -> bool:
        """Whether a cell with these axes is expected to be refused for this reason; blanks and line ends are alike."""
        return self.selector.matches(axes) and " ".join(self.refusal.split()) in " ".join(reason.split())


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownIssue:
    """The cells that `selector` matches are expected to end in `state`.

    `buffer` and `how`, where not empty, say of which overflows the entry speaks. It covers no others; where it names
    buffers it expects each of them in each of its cells.
    """

    selector: Selector
    state: State
    issue: str
    because: str
    buffer: tuple[str, ...] = ()
    how: tuple[How, ...] = ()
    owner: str = ""
    """Who sees to it that the entry goes; empty where nobody is named."""
    until: date | str | None = None
    """The last day on which the entry counts, or the last release for whose cells it does."""
    after: frozenset[AxisValue] = frozenset()
    """The releases behind `until`, where that is a release, in the order of the vllm axis."""
    flaky: bool = False
    """Whether a pass is no surprise."""

    def has_expired(self, axes: Mapping[str, AxisValue], today: date) -> bool:
        """Whether the entry does not count any more for this cell, of those that it speaks of."""
        if isinstance(self.until, date):
            return today > self.until
        return axes.get("vllm") in self.after


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """Everything that matrix.yaml says; the order of its axes is the order of the labels in an id."""

    axes: Mapping[str, tuple[AxisValue, ...]]
    loads: Mapping[str, Load]
    environments: Mapping[str, EnvironmentSpec]
    defaults: Selector = EVERYTHING
    """Which values a run takes of an axis that nothing asks for by name; all of an axis that is not in it."""
    rules: tuple[Rule, ...] = ()
    expect: tuple[Expectation, ...] = ()
    """The refusals that are right."""
    known: tuple[KnownIssue, ...] = ()
    tiers: Mapping[str, tuple[str, ...]]

    @property
    def before(self) -> Mapping[AxisValue, AxisValue]:
        """The release before each value of the vllm axis, by its numbers: of a candidate, the one that it is over."""
        candidates: dict[AxisValue, AxisValue] = {
            name: spec.candidate.over for name, spec in self.environments.items() if spec.candidate
        }
        numbers = {value: found for value in self.axes[RELEASES] if (found := release(value)) is not None}
        releases = sorted(numbers, key=numbers.__getitem__)
        return {**dict(zip(releases[1:], releases, strict=False)), **candidates}


def load(path: Path, *, idle: bool = False) -> Matrix:
    """Read and check a matrix; UsageError where there is no file, MatrixError with all mistakes in it."""
    return read(text_of(path), str(path), idle=idle)


def read(text: str, name: str, *, idle: bool = False) -> Matrix:
    """The matrix that a text holds, which messages call `name`; `idle` lets known issues speak of what is not there."""
    source = yaml_source.parse(text, name)
    document = None
    try:
        document = Document.model_validate(source.data)
    except ValidationError as error:
        matrix_messages.explain(error, source)
    axes = matrix_checks.axes_of(source)
    defaults = matrix_checks.defaults_of(source, axes)
    matrix_checks.check(source, axes, defaults)
    excluded = matrix_checks.selectors(source, axes, "rules", "exclude")
    expected = matrix_checks.selectors(source, axes, "expect", "where", idle=idle)
    known = matrix_checks.selectors(source, axes, "known", "where", idle=idle)
    if not idle:
        matrix_checks.speaks_of_cells(source, axes, excluded, expected, "expect")
        matrix_checks.speaks_of_cells(source, axes, excluded, known, "known")
    after = matrix_checks.after(source, axes, known)
    if source.mistakes or document is None:
        raise MatrixError(name, source.mistakes)
    return Matrix(
        axes=axes,
        loads={key: Load(name=key, **value.model_dump()) for key, value in document.loads.items()},
        environments={
            key: EnvironmentSpec(lock=value.lock, packages=tuple(value.packages))
            for key, value in document.environments.items()
        },
        defaults=defaults,
        rules=tuple(Rule(selector=s, because=r.because) for s, r in zip(excluded, document.rules, strict=True)),
        expect=tuple(
            Expectation(selector=s, refusal=e.refusal, because=e.because)
            for s, e in zip(expected, document.expect, strict=True)
        ),
        known=tuple(
            KnownIssue(
                selector=s,
                state=State(k.state),
                buffer=tuple(k.buffer),
                how=tuple(k.how),
                issue=k.issue,
                because=k.because,
                owner=k.owner or "",
                until=k.until,
                after=later,
                flaky=k.flaky,
            )
            for s, k, later in zip(known, document.known, after, strict=True)
        ),
        tiers={key: tuple(value) for key, value in document.tiers.items()},
    )


def text_of(path: Path) -> str:
    """The text of the file; UsageError where it cannot be read, MatrixError where it is no text."""
    return yaml_source.read(path, "matrix", "--matrix FILE, or run where a matrix.yaml is")
