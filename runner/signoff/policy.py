"""A policy, with the cells of one release that it requires: every mistake at once, with file, line and column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from runner import filters, select, yaml_source
from runner.errors import MatrixError, RunnerError, UsageError
from runner.filters import Filter
from runner.matrix import Matrix
from runner.matrix_messages import Grammar, explain
from runner.model import Cell, CellResult, Evidence, State, Verdict
from runner.nearest import hint, quoted
from runner.signoff import policy_document as documents
from runner.yaml_source import Loc, Source

FOLDER = Path("policies")
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """Cells that must have been shown, and how."""

    name: str
    because: str
    filters: tuple[str, ...]
    tier: str
    """Its name, for people; empty where there is none."""
    tier_filters: tuple[str, ...]
    """What the policy says that the tier is."""
    evidence: tuple[Evidence, ...]
    accept: tuple[Verdict, ...]
    refusals: tuple[str, ...]
    """What the reason of an accepted refusal contains, one of these; EXPECTED is what the matrix expects."""
    max_age_days: int
    green_runs: int
    cells: tuple[Cell, ...]
    excluded: int
    """How many more the filters match that a rule of the matrix takes out."""

    def accepts(self, row: CellResult) -> bool:
        """Whether a verdict is good enough; a refusal is by its reason."""
        if row.state is not State.REFUSED:
            return row.verdict in self.accept
        expected = documents.EXPECTED in self.refusals and row.verdict is Verdict.REFUSED
        return expected or any(text in row.reason for text in self.refusals if text != documents.EXPECTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Area:
    """Cells, by filters that must all match; all cells where there is none."""

    filters: tuple[Filter, ...]

    def has(self, cell: Cell) -> bool:
        return all(
            one.matches(cell.id) and all(one.lets(axis, value) for axis, value in cell.axes.items())
            for one in self.filters
        )

    def __str__(self) -> str:
        return " and ".join(one.text for one in self.filters) or "all cells"


@dataclass(frozen=True, kw_only=True, slots=True)
class Approver:
    """Who may waive what, where, and for how many days after a sign-off."""

    who: str
    what: tuple[str, ...]
    area: Area
    days: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiver:
    """Somebody answers for these gaps of these cells until that day, it included."""

    area: Area
    what: tuple[str, ...]
    who: str
    until: date
    because: str
    issue: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What must have been shown of one release."""

    about: str
    environment: Mapping[str, tuple[str, ...]]
    """What results may say, by the names of `model.ENVIRONMENT`; `same` is what the newest result says."""
    requirements: tuple[Requirement, ...]
    approvers: tuple[Approver, ...] = ()
    waivers: tuple[Waiver, ...] = field(default=())


def find(name: str) -> Path:
    """The file of a policy: a path, or the name of one under policies/ here or of a shipped one."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        return Path(name)
    package = Path(__file__).parents[1]
    folders = (FOLDER, package / "_bundled" / FOLDER, package.parent / FOLDER)
    there = {path.stem: path for folder in reversed(folders) for path in sorted(folder.glob("*.yaml"))}
    if name not in there:
        raise UsageError(f"no policy is called {quoted(name)}{hint(name, there)}: name one, or a file of your own")
    return there[name]


def load(path: Path, chart: Matrix, vllm: str, *, waivers: Path | None = None) -> Policy:
    """Read and check a policy for a value of the vllm axis; MatrixError with all mistakes in it, else UsageError."""
    source, document = _read(path, documents.Document, "policy", "--policy NAME, or a file")
    checks = _Checks(source, chart, vllm)
    tiers = {name: checks.filters(("tiers", name)) for name in source.mapping("tiers")}
    requirements = tuple(checks.requirement(i, tiers) for i, _ in enumerate(source.items("require")))
    approved = [checks.area("approvers", i) for i, _ in enumerate(source.items("approvers"))]
    waived = [checks.area("waivers", i) for i, _ in enumerate(source.items("waivers"))]
    if source.mistakes or document is None:
        raise MatrixError(str(path), source.mistakes)
    return Policy(
        about=document.about,
        environment={key: tuple(values) for key, values in document.environment.items()},
        requirements=tuple(
            Requirement(
                name=asked.name,
                because=asked.because,
                filters=tuple(asked.cells),
                tier=asked.tier or "",
                tier_filters=tuple(document.tiers[asked.tier]) if asked.tier else (),
                evidence=tuple(dict.fromkeys(asked.evidence)),
                accept=tuple(dict.fromkeys(asked.accept or document.accept)),
                refusals=tuple(dict.fromkeys(asked.refusals or document.refusals or ())),
                max_age_days=asked.max_age_days or document.max_age_days,
                green_runs=asked.green_runs or document.green_runs,
                cells=tuple(cell for cell in cells if not cell.unsupported),
                excluded=sum(bool(cell.unsupported) for cell in cells),
            )
            for asked, cells in zip(document.require, requirements, strict=True)
        ),
        approvers=tuple(
            Approver(who=one.who, what=tuple(one.what), area=area, days=one.days)
            for one, area in zip(document.approvers, approved, strict=True)
        ),
        waivers=(*_waivers(document.waivers, waived), *(_more_waivers(waivers, chart, vllm) if waivers else ())),
    )


def _more_waivers(path: Path, chart: Matrix, vllm: str) -> tuple[Waiver, ...]:
    source, document = _read(path, documents.Waivers, "file of waivers", "--waivers FILE")
    areas = [_Checks(source, chart, vllm).area("waivers", i) for i, _ in enumerate(source.items("waivers"))]
    if source.mistakes or document is None:
        raise MatrixError(str(path), source.mistakes)
    return _waivers(document.waivers, areas)


def _waivers(found: Sequence[documents.Waiver], areas: Sequence[Area]) -> tuple[Waiver, ...]:
    return tuple(
        Waiver(area=area, what=tuple(one.what), who=one.who, until=one.until, because=one.because, issue=one.issue)
        for one, area in zip(found, areas, strict=True)
    )


def _read(path: Path, model: type[_Model], what: str, give: str) -> tuple[Source, _Model | None]:
    """The document and what is wrong with its shape; None for the document where something is."""
    source = yaml_source.parse(yaml_source.read(path, what, give), str(path), what)
    try:
        return source, model.model_validate(source.data)
    except ValidationError as error:
        keys = tuple(model.model_fields)
        explain(error, source, Grammar(model, documents.place_name, lambda at: documents.fields(at) if at else keys))
        return source, None


class _Checks:
    """Reads the filters of a policy; notes what is wrong with them in the source."""

    def __init__(self, source: Source, chart: Matrix, vllm: str) -> None:
        self._source, self._chart, self._vllm = source, chart, vllm
        self._names: set[str] = set()

    def requirement(self, number: int, tiers: Mapping[str, Sequence[Filter]]) -> tuple[Cell, ...]:
        """The cells that a requirement asks for, those too that a rule excludes."""
        at: Loc = ("require", number)
        entry, source = self._source.mapping(*at), self._source
        name, tier = entry.get("name"), entry.get("tier")
        if isinstance(name, str) and name in self._names:
            source.mistake((*at, "name"), f"another requirement is called {quoted(name)}: a gap must name one of them")
        self._names.add(str(name))
        found = self.filters((*at, "cells"))
        if isinstance(tier, str) and tier not in tiers:
            remedy = hint(tier, tiers) or f": spell it out, as `tiers: {{{tier}: [FILTER, ...]}}`"
            source.mistake((*at, "tier"), f"the policy has no tier {quoted(tier)}{remedy}")
        if source.is_broken(at) or (tier and source.is_broken(("tiers", tier))):
            return ()
        try:
            texts = [*(one.text for one in (*tiers.get(str(tier), ()), *found)), f"vllm={self._vllm}"]
            cells = select.select(self._chart, filters=texts)
        except RunnerError as error:
            source.mistake(at, f"{documents.place_name(at)} asks for no cell of vllm {self._vllm}: {error}")
            return ()
        if all(cell.unsupported for cell in cells):
            source.mistake(at, f"{documents.place_name(at)} asks for no cell that can run: {cells[0].unsupported}")
        return cells

    def area(self, section: str, number: int) -> Area:
        """Of which cells an approver or a waiver speaks."""
        return Area(filters=self.filters((section, number, "cells")))

    def filters(self, at: Loc) -> tuple[Filter, ...]:
        """The filters at a place, one or a list."""
        raw = self._source.mapping(*at[:-1]).get(str(at[-1]))
        items = raw if isinstance(raw, list) else ()
        written = [(at, raw)] if isinstance(raw, str) else [((*at, i), one) for i, one in enumerate(items)]
        found = []
        for place, text in written:
            if not isinstance(text, str) or not text or self._source.is_broken(place):
                continue
            try:
                one = filters.parse(text, self._chart.axes)
            except RunnerError as error:
                self._source.mistake(place, f"{documents.place_name(place)}: {error}")
                continue
            if "vllm" in one.wanted or any(axis == "vllm" for axis, _ in one.unwanted):
                self._source.mistake(place, f"{quoted(text)} names a release: a policy is for any, --vllm says which")
                continue
            found.append(one)
        return tuple(found)
