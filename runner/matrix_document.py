"""What matrix.yaml may hold, as pydantic models: what checks its shape and makes the JSON schema for editors."""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from runner.axes import LABEL, NEUTRAL
from runner.model import Fault, How, State

PRODUCT_STATES = frozenset(state.value for state in State if state.fault is Fault.PRODUCT)


def on_off(value: object) -> object:
    """YAML 1.1 reads a bare `on` and `off` as booleans; on the hybrid axis they are names."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _end(value: object) -> date | str:
    """A day, or a word that may be a release: whether it is one is checked against the axis, in matrix_checks.py."""
    if not isinstance(value, str) or not value:
        raise PydanticCustomError("end", "must be a date or a release")
    try:
        return date.fromisoformat(value)
    except ValueError:
        if "-" in value:  # no label has it
            raise
        return value


def _count_or_load(value: object) -> object:
    if value == "load" or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise PydanticCustomError("count_or_load", "must be a whole number more than 0, or load")


PACKAGE = r"^[A-Za-z0-9._-]+==[A-Za-z0-9.+]+( --hash=sha256:[0-9a-f]{64})*$"
ISSUE = r"^(https?://[^\s/]+/\S+|docs/\S+)$"
Text = Annotated[str, Field(min_length=1)]
Label = Annotated[str, Field(pattern=LABEL, max_length=32)]
Package = Annotated[str, Field(pattern=PACKAGE)]
Count = Annotated[int, Field(gt=0)]
OnOff = Annotated[Literal["on", "off"], BeforeValidator(on_off), WithJsonSchema({"enum": ["on", "off", True, False]})]
OfLoad = Annotated[
    int | str,
    PlainValidator(_count_or_load),
    WithJsonSchema({"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"const": "load"}]}),
]
"""A number of its own, or what the load says."""
End = Annotated[
    date | str,
    PlainValidator(_end),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "pattern": LABEL}]}),
]
"""The last day, or the last release."""

_HOW = {"enum": [how.value for how in How]}
Hows = Annotated[
    list[Annotated[How, Field(strict=False)]],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [_HOW, {"type": "array", "minItems": 1, "items": _HOW}]}),
]

_BUFFER = {"type": "string", "minLength": 1}
Buffers = Annotated[
    list[Text],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [_BUFFER, {"type": "array", "minItems": 1, "items": _BUFFER}]}),
]

# What a selector wants of an axis is checked against the axis itself, in matrix_checks.py; this is for editors.
_NAMES = {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "string"}}]}
_COUNTS = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": "^(!=|>=|<=|==|=|>|<) *[0-9]+$"},
        {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
    ]
}
_OF_LOAD = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}
_OF_LOADS = {"anyOf": [*_OF_LOAD["anyOf"], {"type": "array", "minItems": 1, "items": _OF_LOAD}]}
_SWITCH = {"enum": ["on", "off", True, False]}
_SWITCHES = {
    "anyOf": [_SWITCH, {"enum": ["!=on", "!=off"]}, {"type": "array", "minItems": 1, "items": _SWITCH}],
}
Names = Annotated[Any, WithJsonSchema(_NAMES)]
Counts = Annotated[Any, WithJsonSchema(_COUNTS)]
OfLoads = Annotated[Any, WithJsonSchema(_OF_LOADS)]
Switches = Annotated[Any, WithJsonSchema(_SWITCHES)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _axis(description: str) -> Any:
    return Field(min_length=1, max_length=100, description=description)


def _optional(axis: str, description: str) -> Any:
    says = f"{description} `{NEUTRAL[axis]}`, which does not show in ids, where the axis is left out."
    return Field(default=[NEUTRAL[axis]], min_length=1, max_length=100, description=says)


class Axes(_Strict):
    """One list of values per axis. A cell's id joins their labels in the order of the file."""

    vllm: list[Label] = Field(
        min_length=1, max_length=100, description="Releases of vLLM, quoted; each has an environment."
    )
    backend: list[Label] = Field(
        min_length=1, max_length=100, description="Attention backends, in vLLM's names in lower case."
    )
    arch: list[Label] = _axis("GPU archs such as sm90, or cpu.")
    hybrid: list[OnOff] = _axis("The hybrid KV-cache manager.")
    spec_k: list[Annotated[int, Field(ge=0)]] = Field(
        min_length=1, max_length=100, description="Draft tokens per step; 0 is none."
    )
    chunk: list[Count] = _axis("Attention chunk size in tokens.")
    load: list[Label] = _axis("Names under `loads`.")
    kv_dtype: list[Label] = _optional("kv_dtype", "What vLLM is given as `kv_cache_dtype`.")
    head_size: list[OfLoad] = _optional("head_size", "Elements of a head, instead of the load's.")
    group_size: list[OfLoad] = _optional("group_size", "Query heads per KV head: makes the load's `num_heads`.")
    page_size: list[OfLoad] = _optional("page_size", "Tokens per page of the KV cache: the load's `block_size`.")
    cudagraph: list[Literal["auto", "none", "piecewise", "full"]] = _optional("cudagraph", "CUDA-graph mode asked for.")
    draft: list[Literal["ngram", "eagle"]] = _optional("draft", "What makes the draft tokens.")
    case: list[Literal["metadata", "forward", "engine"]] = _optional(
        "case", "What is judged: what builders make, what a backend's forward computes, or a whole engine's tokens."
    )


class Deployment(_Strict):
    """A deployment shape: what a user gives vLLM on its command line."""

    max_num_seqs: Count
    max_num_batched_tokens: Count
    max_model_len: Count
    block_size: Count = Field(description="Tokens per page of the KV cache.")
    num_heads: Count
    num_kv_heads: Count
    head_size: Count
    dtype: Label


class Environment(_Strict):
    """What provides one release of vLLM."""

    lock: Text = Field(description="A pip requirements file, relative to the project, that pins everything below.")
    packages: list[Package] = Field(
        min_length=1, description="What is laid over it, without dependencies: vLLM, with the hash of its wheel."
    )


class Where(_Strict):
    """Cells, by a value, a list of values or a quoted comparison such as ">=3" or "!=0" for each axis named."""

    vllm: Names = None
    backend: Names = None
    arch: Names = None
    hybrid: Switches = None
    spec_k: Counts = None
    chunk: Counts = None
    load: Names = None
    kv_dtype: Names = None
    head_size: OfLoads = None
    group_size: OfLoads = None
    page_size: OfLoads = None
    cudagraph: Names = None
    draft: Names = None
    case: Names = None


class Exclusion(_Strict):
    """Takes cells out of the matrix and says why; they stay visible as `unsupported`."""

    exclude: Where
    because: Text


class Known(_Strict):
    """A known issue: the cells it speaks of are expected to end in this state."""

    where: Where
    state: Literal["crash", "oom", "timeout", "overflow", "fail"]  # PRODUCT_STATES, which a type cannot be made from
    buffer: Buffers = Field(
        default=[], description="For overflow: only of these buffers; each of them is expected in every cell."
    )
    how: Hows = Field(default=[], description="For overflow: only one that showed in one of these ways.")
    issue: Annotated[str, Field(pattern=ISSUE)] = Field(description="The link to the issue, or a page under docs/.")
    because: Text
    owner: Text | None = Field(default=None, description="Who sees to it that the entry goes.")
    until: End | None = Field(
        default=None, description="The last day on which the entry counts, as 2027-01-31, or the last release, quoted."
    )
    flaky: bool = Field(default=False, description="The cells may pass as well: such a cell is `flaky` either way.")


class Expected(_Strict):
    """A refusal of vLLM that is right: the cells, and words that its reason must hold."""

    where: Where
    refusal: Annotated[str, Field(min_length=8)] = Field(description="A part of the reason that vLLM gives.")
    because: Text


class Document(_Strict):
    """The compatibility matrix of attnmatrix: one cell per combination of one value of each axis."""

    axes: Axes
    defaults: Where = Field(
        default=Where(), description="What a run takes of an axis that no filter and no tier names; else all of it."
    )
    loads: dict[Label, Deployment] = Field(min_length=1)
    environments: dict[Label, Environment] = Field(min_length=1)
    rules: list[Exclusion] = []
    expect: list[Expected] = Field(default=[], description="Refusals of vLLM that are right; any other is bad.")
    known: list[Known] = []
    tiers: dict[Label, list[Text]] = Field(default={}, description="Named lists of filters: `--tier NAME`.")


def json_schema() -> dict[str, Any]:
    """The JSON schema of matrix.yaml, for editors."""
    schema = Document.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "attnmatrix matrix"}
