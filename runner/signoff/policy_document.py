"""What a policy, and a file of waivers, may hold: pydantic models that check the shape."""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from runner.matrix_document import ISSUE, Count, Label, Text
from runner.model import Evidence, Verdict
from runner.nearest import hint, quoted
from runner.signoff import gaps

SAME = "same"
EXPECTED = "expected"


def _date(value: object) -> object:
    return date.fromisoformat(value) if isinstance(value, str) else value


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _gap(value: str) -> str:
    if value not in gaps.NAMES:
        near = hint(value, gaps.NAMES) or f"; there is {', '.join(gaps.NAMES)}"
        raise PydanticCustomError("gap", "unknown gap {name}{near}", {"name": quoted(value), "near": near})
    return value


def _no_refusal(value: Verdict) -> Verdict:
    if value in REFUSALS:
        why = "is not accepted whatever its reason: write `refusals: expected`, or what their reasons contain"
        raise PydanticCustomError("refusal", "{name} {why}", {"name": quoted(value.value), "why": why})
    return value


def _one_or_more(item: dict[str, Any]) -> WithJsonSchema:
    """One of them, or a list."""
    return WithJsonSchema({"anyOf": [item, {"type": "array", "minItems": 1, "items": item}]})


REFUSALS = tuple(verdict for verdict in Verdict if verdict.value.startswith("refused"))
_TEXT = {"type": "string", "minLength": 1}
_ACCEPTABLE = [verdict.value for verdict in Verdict if verdict not in REFUSALS]
_AtLeastOne = Field(min_length=1)
_Listed = BeforeValidator(_listed)
Texts = Annotated[list[Text], _AtLeastOne, _Listed, _one_or_more(_TEXT)]
Gaps = Annotated[
    list[Annotated[Text, AfterValidator(_gap)]], _AtLeastOne, _Listed, _one_or_more({"enum": list(gaps.NAMES)})
]
Verdicts = Annotated[
    list[Annotated[Verdict, Field(strict=False), AfterValidator(_no_refusal)]],
    _AtLeastOne,
    _Listed,
    _one_or_more({"enum": _ACCEPTABLE}),
]
Evidences = Annotated[
    list[Annotated[Evidence, Field(strict=False)]],
    _AtLeastOne,
    _Listed,
    _one_or_more({"enum": [evidence.value for evidence in Evidence]}),
]
Refusals = Annotated[list[Text], _AtLeastOne, _Listed, _one_or_more(_TEXT)]
"""What a reason must contain, one of them; `expected` alone are the refusals that the matrix expects."""
EnvironmentKey = Literal[
    "vllm",
    "flashinfer",
    "torch",
    "image_digest",
    "base_digest",
    "gpu",
    "driver",
    "machine",
    "recipe_digest",
    "hashes",
    "cases_digest",
]


Day = Annotated[date, BeforeValidator(_date), WithJsonSchema({"type": "string", "format": "date"})]
Days = Annotated[int, Field(gt=0, le=3650)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Requirement(_Strict):
    """Cells that must have been shown, and how."""

    name: Text
    cells: list[Text] = Field(default=[], description="Filters, all of which must match.")
    tier: Text | None = Field(default=None, description="Only cells of this tier, as the policy spells it out.")
    evidence: Evidences = Field(description="The kinds that are good enough; each counts as much as another.")
    accept: Verdicts | None = Field(default=None, description="Instead of the policy's.")
    refusals: Refusals | None = Field(default=None, description="Instead of the policy's.")
    max_age_days: Days | None = Field(default=None, description="Instead of the policy's.")
    green_runs: Count | None = Field(default=None, description="Instead of the policy's.")
    because: Text = Field(description="Why a release must show it.")


class Approver(_Strict):
    """Who may waive what, and for how long."""

    who: Text
    what: Gaps = Field(description="Gaps: absent, evidence, stale, environment, runs, or a verdict.")
    cells: list[Text] = Field(default=[], description="Filters; all cells where there is none.")
    days: Days = Field(description="How many days after a sign-off a waiver may end at the latest.")


class Waiver(_Strict):
    """Somebody answers for gaps of some cells, until a day."""

    cells: Texts
    what: Gaps
    who: Text
    until: Day
    because: Text
    issue: Annotated[str, Field(pattern=ISSUE)]


class Waivers(_Strict):
    """A file of waivers beside a policy."""

    waivers: list[Waiver] = Field(min_length=1)


class Document(_Strict):
    """A sign-off policy: what must have been shown of a release."""

    about: Text
    accept: Verdicts = Field(default=[Verdict.PASS], description="Verdicts; a refusal is accepted by its reason.")
    refusals: Refusals | None = Field(
        default=None,
        description="Which refusals are accepted: `expected` by an entry of the matrix, or what their reasons contain.",
    )
    max_age_days: Days
    green_runs: Count = 1
    environment: dict[EnvironmentKey, Texts] = Field(
        default={}, description="What must be the same in all results of one kind of evidence, or one of these."
    )
    tiers: dict[Label, Annotated[list[Text], _AtLeastOne]] = Field(
        default={}, description="The tiers that requirements name, by their filters: a matrix does not change them."
    )
    require: list[Requirement] = Field(min_length=1)
    approvers: list[Approver] = []
    waivers: list[Waiver] = []


def fields(at: tuple[str | int, ...]) -> tuple[str, ...]:
    """The keys that the mapping at this path may have."""
    models: dict[Any, type[BaseModel]] = {"require": Requirement, "approvers": Approver, "waivers": Waiver}
    match at:
        case (section, _) if section in models:
            return tuple(models[section].model_fields)
        case ("environment",) | ("tiers",):
            return ()
    return tuple(Document.model_fields)


def place_name(at: tuple[str | int, ...]) -> str:
    """How a message calls the thing at this path."""
    entries = {"require": "requirement", "approvers": "approver", "waivers": "waiver"}
    match at:
        case ():
            return "the policy"
        case (str(section), int(number)) if section in entries:
            return f"{entries[section]} {number + 1}"
        case (str(section), int(number), field, *rest) if section in entries:
            what = "an item of " if rest else ""
            return f"{what}{quoted(field)} in {place_name((section, number))}"
        case ("accept" | "environment" | "refusals" as section, key, *_):
            return f"{quoted(key) if isinstance(key, str) else 'an item'} in {quoted(section)}"
        case ("tiers", name, *rest):
            return f"{'an item of ' if rest else ''}tier {quoted(name)}"
    return quoted(at[-1])


def json_schema(model: type[BaseModel], title: str) -> dict[str, Any]:
    """The JSON schema of a policy, or of a file of waivers, for editors."""
    schema = model.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": f"attnmatrix {title}"}
