"""What counts as a refusal: an error that vLLM raises on purpose while it reads a configuration.

Anything else that comes up there is a failure: what Python, torch or numpy raise in the midst of vLLM's code, what it
raises because it could not import something, and what is raised in no code of vLLM at all.
"""

import ast
import linecache
import textwrap
import traceback

from pydantic import ValidationError

from cases.causes import of_product

NOT_ON_PURPOSE = (ImportError, MemoryError, OSError, AttributeError, NameError)
"""Errors after which nobody knows whether vLLM would have taken the configuration."""
SPEAKS_FOR_VLLM = "attnmatrix_vllm/presented.py"
"""The presented platform, which raises the reasons of vLLM's own validation, as its CUDA platform does."""
UNKNOWN = "Unknown attention backend"
"""vLLM's words for a backend that it has not: nothing that exists was refused."""
OF_ARGUMENTS = frozenset({"unexpected_keyword_argument", "missing", "missing_argument", "extra_forbidden"})
"""pydantic's words for arguments that this release does not know: an API that the cases do not know."""


def on_purpose(error: Exception) -> bool:
    """Whether vLLM raised this to refuse: by a `raise` of its own, or by what it declares of a field."""
    if isinstance(error, ValidationError):
        of_fields = error.errors(include_url=False, include_context=False, include_input=False)
        return not any(one["type"] in OF_ARGUMENTS for one in of_fields)
    if str(error).startswith(UNKNOWN):
        return False
    chain, before = {id(error)}, error.__cause__ or error.__context__
    while before is not None and id(before) not in chain:
        if isinstance(before, NOT_ON_PURPOSE):
            return False
        chain.add(id(before))
        before = before.__cause__ or before.__context__
    last = traceback.extract_tb(error.__traceback__)[-1]
    by_vllm = bool(of_product(last.filename)) or last.filename.endswith(SPEAKS_FOR_VLLM)
    return by_vllm and _raises(last)


def _raises(frame: traceback.FrameSummary) -> bool:
    """Whether the statement that a frame was in is a `raise`; believed where its source is not at hand."""
    first, last = frame.lineno or 0, frame.end_lineno or frame.lineno or 0
    source = textwrap.dedent("".join(linecache.getline(frame.filename, number) for number in range(first, last + 1)))
    try:
        return not source or isinstance(ast.parse(source).body[0], ast.Raise)
    except (SyntaxError, IndexError):
        return source.lstrip().startswith("raise")
