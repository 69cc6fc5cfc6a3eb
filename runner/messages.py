"""What a worker may say, checked: everything it sends is untrusted (docs/protocol.md)."""

import json
import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from runner.model import Batch, CaseResult, Cause, Death, How, Overflow, State
from runner.worker import DEPTH, deeper

LINE_LIMIT = 8 * 1024 * 1024
"""Bytes of the longest line that is read."""

MESSAGE_LIMIT = 8 * 1024
RESOLVED_LIMIT = 16 * 1024
NAME_LIMIT = 300

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Control characters, bidirectional overrides and isolates (they reorder what a reader sees), lone surrogates.
_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


class ProtocolError(Exception):
    """A worker said something that the protocol does not know; says what, without quoting it at length."""


def clean(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """Text that is safe to print and to store: no colours, control characters as escapes, at most `limit` long."""
    text = _ANSI.sub("", text[: 2 * limit]).replace("\r\n", "\n")
    text = _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _clean_json(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_clean_json(item) for item in value]
    if isinstance(value, dict):
        return {clean(key, 64): _clean_json(item) for key, item in value.items()}
    return value


def _small(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if deeper(value):  # readers of JSON give up somewhere, and a journal must be read back
        raise ValueError(f"brackets in each other, more than {DEPTH} deep")
    cleaned = _clean_json(value)
    assert isinstance(cleaned, dict)
    if len(str(cleaned)) > RESOLVED_LIMIT:
        raise ValueError(f"longer than {RESOLVED_LIMIT} characters")
    return cleaned


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


CellId = Annotated[str, StringConstraints(max_length=512)]
Text = Annotated[str, AfterValidator(clean)]
Name = Annotated[
    str,
    StringConstraints(min_length=1, max_length=NAME_LIMIT),
    AfterValidator(lambda text: clean(text, NAME_LIMIT)),
]
Version = Annotated[str, AfterValidator(lambda text: clean(text, 100))]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Lengths = Annotated[tuple[Count, ...], Field(max_length=65_536)]
Resolved = Annotated[dict[str, JsonValue], AfterValidator(_small)]


class Versions(_Message):
    """What the environment says it holds; empty where it has none."""

    vllm: Version = ""
    torch: Version = ""
    flashinfer: Version = ""


class Ready(_Message):
    """The worker has imported everything; once, before the first cell."""

    environment: Versions
    import_s: Seconds
    guarded: bool = True
    """Whether a cell cannot end this worker: where one can, a worker that ends is the cell's own doing."""


class Broken(_Message):
    """The worker cannot run any cell; it ends."""

    reason: Text


class BatchBody(_Message):
    query_lens: Lengths
    seq_lens: Lengths


class OverflowBody(_Message):
    buffer: Name
    required: Count
    allocated: Count
    how: How
    batch: BatchBody


class CauseBody(_Message):
    """Where an exception that decided a case was raised: the last frame of vLLM."""

    exception: Name
    words: Text = ""
    file: Name
    line: Count
    function: Name


class Case(_Message):
    """One case of the running cell has ended."""

    cell: CellId
    name: Name
    state: State
    message: Text = ""
    duration_s: Seconds = 0.0
    overflow: Annotated[tuple[OverflowBody, ...], Field(max_length=256)] = ()
    resolved: Resolved = Field(default_factory=dict)
    cause: CauseBody | None = None

    def result(self) -> CaseResult:
        return CaseResult(
            name=self.name,
            state=self.state,
            message=self.message,
            duration_s=self.duration_s,
            overflow=tuple(
                Overflow(
                    buffer=item.buffer,
                    required=item.required,
                    allocated=item.allocated,
                    how=item.how,
                    batch=Batch(query_lens=item.batch.query_lens, seq_lens=item.batch.seq_lens),
                )
                for item in self.overflow
            ),
            cause=Cause(**self.cause.model_dump()) if self.cause else None,
        )


class Log(_Message):
    """A piece of what the running cell printed."""

    cell: CellId
    text: Annotated[str, StringConstraints(max_length=LINE_LIMIT), AfterValidator(lambda text: clean(text, LINE_LIMIT))]


class DeathBody(_Message):
    signal: Annotated[str, StringConstraints(pattern=r"^(SIG[A-Z0-9+]{1,12})?$")] = ""
    exit_code: Annotated[int, Field(ge=0, le=255)] = 0
    timed_out_after_s: Seconds = 0.0
    silent_for_s: Seconds = 0.0
    out_of_memory: bool = False


class Done(_Message):
    """The running cell's process has ended, and all that it left has been sent."""

    cell: CellId
    duration_s: Seconds
    death: DeathBody | None

    def how(self) -> Death | None:
        return Death(**self.death.model_dump()) if self.death else None


Message = Ready | Broken | Case | Log | Done

_KINDS: dict[str, TypeAdapter[Any]] = {
    "ready": TypeAdapter(Ready),
    "broken": TypeAdapter(Broken),
    "case": TypeAdapter(Case),
    "log": TypeAdapter(Log),
    "done": TypeAdapter(Done),
}
_HEAD = re.compile(rb'\s*\{\s*"([a-z]{1,16})"\s*:(.*)\}\s*', re.DOTALL)


def parse(line: bytes) -> Message:
    """One line of a worker as a message; ProtocolError where it is none."""
    if len(line) > LINE_LIMIT:
        raise ProtocolError(f"a line longer than {LINE_LIMIT} bytes")
    head = _HEAD.fullmatch(line)
    kind = head[1].decode() if head else ""
    if head is None or kind not in _KINDS:
        raise ProtocolError(f"no message of the protocol: {clean(line[:80].decode(errors='replace'), 100)}")
    try:
        message: Message = _KINDS[kind].validate_json(head[2])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = clean(".".join(str(part) for part in first["loc"]), 100)
        wrong = f"{where or 'body'}: {clean(first['msg'], 200)}"
        if kind == "case" and (spoilt := _spoilt(head[2], wrong)):
            return spoilt
        raise ProtocolError(f"a wrong {kind!r} message: {wrong}") from None
    return message


def _spoilt(body: bytes, wrong: str) -> Case | None:
    """A case whose report is none has failed: its words are the cell's own, which the worker only passed on.

    None where it does not say which case of which cell it is.
    """
    try:
        said = json.loads(body)
        name = said["name"][:NAME_LIMIT]
        return Case(cell=said["cell"], name=name, state=State.FAIL, message=f"what it reported is no result: {wrong}")
    except (ValueError, TypeError, LookupError, RecursionError):
        return None


def kind(message: Message) -> str:
    """What a line calls a message of this type."""
    return type(message).__name__.lower()


def render(message: Message) -> bytes:
    """The line, without its end, that `parse` makes this message of."""
    return b'{"%s":%s}' % (kind(message).encode(), message.model_dump_json().encode())
