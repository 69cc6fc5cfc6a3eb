"""What matrix.yaml may hold, as pydantic models: what checks its shape and makes the JSON schema for editors."""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from runner.axes import LABEL
from runner.model import Fault, How, State

PRODUCT_STATES = frozenset(state.value for state in State if state.fault is Fault.PRODUCT)


def on_off(value: object) -> object:
    """YAML 1.1 reads a bare `on` and `off` as booleans; on the hybrid axis they are names."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def _date(value: object) -> object:
    return date.fromisoformat(value) if isinstance(value, str) else value


PACKAGE = r"^[A-Za-z0-9._-]+==[A-Za-z0-9.+]+$"
ISSUE = r"^(https?://[^\s/]+/\S+|docs/\S+)$"
Text = Annotated[str, Field(min_length=1)]
Label = Annotated[str, Field(pattern=LABEL, max_length=32)]
Package = Annotated[str, Field(pattern=PACKAGE)]
Count = Annotated[int, Field(gt=0)]
OnOff = Annotated[Literal["on", "off"], BeforeValidator(on_off), WithJsonSchema({"enum": ["on", "off", True, False]})]
Day = Annotated[date, BeforeValidator(_date), WithJsonSchema({"type": "string", "format": "date"})]

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
_SWITCH = {"enum": ["on", "off", True, False]}
_SWITCHES = {
    "anyOf": [_SWITCH, {"enum": ["!=on", "!=off"]}, {"type": "array", "minItems": 1, "items": _SWITCH}],
}
Names = Annotated[Any, WithJsonSchema(_NAMES)]
Counts = Annotated[Any, WithJsonSchema(_COUNTS)]
Switches = Annotated[Any, WithJsonSchema(_SWITCHES)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def _axis(description: str) -> Any:
    return Field(min_length=1, max_length=100, description=description)


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
        default=[], description="What is laid over it, without dependencies: vLLM itself, where the lock has none."
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
    until: Day | None = Field(default=None, description="The last day on which the entry counts, as 2027-01-31.")


class Document(_Strict):
    """The compatibility matrix of attnmatrix: one cell per combination of one value of each axis."""

    axes: Axes
    loads: dict[Label, Deployment] = Field(min_length=1)
    environments: dict[Label, Environment] = Field(min_length=1)
    rules: list[Exclusion] = []
    known: list[Known] = []
    tiers: dict[Label, list[Text]] = Field(default={}, description="Named lists of filters: `--tier NAME`.")


def json_schema() -> dict[str, Any]:
    """The JSON schema of matrix.yaml, for editors."""
    schema = Document.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "attnmatrix matrix"}
