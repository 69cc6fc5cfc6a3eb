"""How a message quotes what was written and names what may have been meant."""

import difflib
from collections.abc import Iterable

_SHORT_LIST = 8
_LONGEST = 60


def quoted(value: object) -> str:
    """What was written, cut short, with control characters made visible."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def nearest(word: object, known: Iterable[object]) -> list[str]:
    """The names most like the word, best first; none where nothing is like it."""
    names = list(dict.fromkeys(str(name) for name in known))
    return difflib.get_close_matches(str(word)[: 2 * _LONGEST].lower(), names, n=3, cutoff=0.6)


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """`, did you mean 'hybrid'?` where a name is near, else nothing."""
    near = nearest(word, known)
    return f", did you mean {' or '.join(quoted(name) for name in near)}?" if near else ""


def hint(word: object, known: Iterable[object]) -> str:
    """The same, or where nothing is near and the choice is small, the choice."""
    names = list(dict.fromkeys(str(name) for name in known))
    if near := did_you_mean(word, names):
        return near
    return f"; there is {', '.join(names)}" if 0 < len(names) <= _SHORT_LIST else ""
