"""How a case says something other than pass or fail: by raising one of these."""

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Batch:
    """Per request: tokens scheduled in this step, and tokens in the sequence after it (both at least 1)."""

    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]

    def __str__(self) -> str:
        requests = list(zip(self.query_lens, self.seq_lens, strict=True))
        shown = ", ".join(f"{q} of {s}" for q, s in requests[:6])
        more = ", …" if len(requests) > 6 else ""
        count = f"{len(requests)} requests" if len(requests) > 1 else "one request"
        return f"{count} (tokens scheduled of sequence length): {shown}{more}"


@dataclass(frozen=True)
class Overflow:
    """A buffer needs `required` entries for `batch` and has `allocated`; `how` it showed is a word of the design."""

    buffer: str
    required: int
    allocated: int
    how: str
    batch: Batch
    detail: str = ""
    cause: Mapping[str, Any] | None = field(default=None, compare=False)
    """Where in vLLM it was raised, as `cases.causes` says it; None where vLLM raised nothing."""


def words_of(error: BaseException) -> str:
    """The type and the message of an error; where it has none, as an assertion of vLLM's, the line that raised it."""
    words = str(error) or (traceback.extract_tb(error.__traceback__)[-1].line if error.__traceback__ else "")
    return f"{type(error).__name__}: {words}"


def ours(error: BaseException) -> bool:
    """Whether the cases themselves raised it: what they do not know, or trip over."""
    return (
        error.__traceback__ is not None and HERE in Path(traceback.extract_tb(error.__traceback__)[-1].filename).parents
    )


class Overflowed(Exception):
    """Buffers overran: state `overflow`. `also` is what went wrong with another batch: then it is `fail`.

    A known overflow must not cover it. The overflows are told all the same.
    """

    def __init__(self, overflows: Sequence[Overflow], also: str = "") -> None:
        self.overflows, self.also = tuple(overflows), also
        self.cause = next((one.cause for one in self.overflows if one.cause), None)
        super().__init__(
            "; ".join(
                f"{o.buffer} needs {o.required} and has {o.allocated} ({o.how}) for {o.batch}"
                + (f": {o.detail}" if o.detail else "")
                for o in self.overflows
            )
            + (f"; and another batch: {also}" if also else "")
        )


class Wrong(AssertionError):
    """A batch is wrong, in words: state `fail`. `cause` is where in vLLM it was raised, if it was."""

    def __init__(self, words: str, cause: Mapping[str, Any] | None = None) -> None:
        self.cause = cause
        super().__init__(words)


class Refused(Exception):
    """vLLM refused the combination before any work, with this reason: state `refused`."""


class HandedOver(AssertionError):
    """vLLM gave the cases a value that breaks its contract: state `fail`. `by` is the function of vLLM that made it."""

    def __init__(self, what: str, expected: str, got: str, by: Any = None) -> None:
        self.by = by
        super().__init__(f"vLLM handed over {what}: expected {expected}, got {got}")


class MachineTrouble(Exception):
    """The machine or the environment kept vLLM from its work, which says nothing about vLLM: state `infra`."""


class Ignored(AssertionError):
    """vLLM took what it was asked for, did something else, and said nothing: state `fail`."""


class Substituted(Exception):
    """Another backend, kernel or device ran than the cell asked for: state `substituted`."""


class Unavailable(Exception):
    """This environment cannot run the cell, for a reason that says nothing about vLLM: state `skipped`."""
