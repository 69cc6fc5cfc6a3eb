"""A file of a bundle says nothing beside what is read from it: it is, byte for byte, what the runner writes of that.

So a key that is there twice, a number that is none and a field that nobody reads are found without being looked for.
"""

from runner.errors import UsageError
from runner.reports.text import one_line

AROUND = 40


def check(name: str, there: bytes, written: bytes) -> None:
    """UsageError with the first place where a file is not as it is written."""
    if there == written:
        return
    place = next((i for i, (a, b) in enumerate(zip(there, written, strict=False)) if a != b), None)
    start = min(len(there), len(written)) if place is None else place
    line = there[:start].count(b"\n") + 1
    raise UsageError(
        f"{name}: line {line} is not what the runner writes of it: {_around(there, start)} there, "
        f"{_around(written, start)} follows from the rest"
    )


def _around(data: bytes, place: int) -> str:
    return repr(one_line(data[max(0, place - AROUND) : place + AROUND].decode("utf-8", "backslashreplace")))
