"""Waits for the jobs on GPU machines, but not for one that no machine takes: GitHub itself would wait for a day."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runner.ci.api import JobState, Unavailable, named

POLL_S = 20.0
FAILURES = 30
"""In a row, before GitHub's silence is trouble: ten minutes."""
UNLISTED_S = 60.0
"""After which a job that is not listed is one that does not run again: GitHub's documentation leaves open whether the
list of a later attempt has those."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Waited:
    """How the jobs stand when the waiting ends."""

    untaken: tuple[str, ...] = ()
    """Those that no machine took in time."""
    red: tuple[str, ...] = ()
    """Those that ended otherwise than well."""


def wait(
    names: Sequence[str],
    ask: Callable[[], Sequence[JobState]],
    *,
    patience_s: float,
    tell: Callable[[str], None],
    before: Callable[[], Mapping[str, JobState]] = dict,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Waited:
    """Until each named job has ended, or has been queued for `patience_s`; one that a machine took is waited for.

    `before` gives how jobs ended in earlier attempts: those that ended well there need not run again.
    """
    begun, told, failures = clock(), "", 0
    grace = min(UNLISTED_S, patience_s / 4)
    while names:
        try:
            listed, failures = ask(), 0
            states = {name: named(name, listed) for name in names}
            if None in states.values() and clock() - begun >= grace:
                well = {name: state for name, state in before().items() if state.conclusion == "success"}
                states = {name: state or well.get(name) for name, state in states.items()}
        except Unavailable as error:
            failures += 1
            if failures > FAILURES:
                raise
            tell(f"{error}; asked again in {POLL_S:g} s")
            sleep(POLL_S)
            continue
        queued = tuple(name for name, state in states.items() if state is None or _is_queued(state))
        running = tuple(n for n, s in states.items() if n not in queued and s is not None and s.status != "completed")
        late = clock() - begun >= patience_s
        if not running and (late or not queued):
            ended = {n: s for n, s in states.items() if s is not None and s.status == "completed"}
            return Waited(untaken=queued, red=tuple(n for n, s in ended.items() if s.conclusion != "success"))
        news = f"queued: {', '.join(queued) or 'none'}; running: {', '.join(running) or 'none'}"
        if news != told:
            tell(news)
            told = news
        sleep(min(POLL_S, max(0.05, patience_s / 4)))
    return Waited()


def _is_queued(state: JobState) -> bool:
    return state.status in {"queued", "waiting", "pending", "requested"}
