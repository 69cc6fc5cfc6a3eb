"""Where an exception that decided a case came from, so that a report can name vLLM's line."""

import inspect
import linecache
import traceback
from pathlib import Path
from typing import Any

from cases.verdicts import HandedOver, Overflowed, Wrong

PRODUCT = "vllm"


def cause_of(error: BaseException | None) -> dict[str, Any] | None:
    """The last frame of vLLM that an exception, or what it was raised from, went through; None where there is none.

    A verdict of ours says it by itself: what an overflow was raised from may be another batch's trouble.
    `file` is relative to where packages are installed. The keys are those of `cause` in docs/results.md.
    """
    if isinstance(error, HandedOver):
        return _maker(error)
    if isinstance(error, Overflowed) and error.also:
        return cause_of(error.__cause__)  # the case failed by this, beside its overflows
    if isinstance(error, (Overflowed, Wrong)):
        return dict(error.cause) if error.cause else None
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
            name = frame.f_code.co_filename
            if file := of_product(name):
                return {
                    "exception": type(error).__name__,
                    "words": str(error) or linecache.getline(name, line).strip(),
                    "file": file,
                    "line": line,
                    "function": frame.f_code.co_name,
                }
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def _maker(error: HandedOver) -> dict[str, Any] | None:
    """The function of vLLM that made a value which breaks its contract."""
    code = getattr(inspect.unwrap(error.by), "__code__", None) if error.by else None
    if code is None or not (file := of_product(code.co_filename)):
        return None
    place = {"file": file, "line": code.co_firstlineno, "function": code.co_name}
    return {"exception": type(error).__name__, "words": str(error), **place}


def of_product(filename: str) -> str:
    """The file of vLLM as it is called inside the folder of packages; empty for a file of anything else."""
    parts = Path(filename).parts
    if "site-packages" not in parts:
        return ""
    inside = parts[len(parts) - parts[::-1].index("site-packages") :]
    return "/".join(inside) if inside[0] == PRODUCT else ""
