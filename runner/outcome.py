"""The states: what became of a cell, which of several is the worst, how they add up, what the run exits with."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from runner.model import CaseResult, CellOutcome, CellResult, Death, Evidence, Fault, Overflow, State, Verdict

INTERNAL_ERROR = 70
"""What the worker's child ends with when pytest or our own plugin broke: harness trouble, see runner/worker.py."""

ILLEGAL = (
    "this CPU does not take an instruction of the compiled code that is installed here; take builds of torch and vLLM "
    "for this CPU, or run the cell on another machine"
)
"""Of a cell that died before it was known which instructions `cpu_attn` chose. After that, the choice is vLLM's."""

BADNESS = {state: position for position, state in enumerate(State)}
VERDICT_ORDER = {
    verdict: position
    for position, verdict in enumerate(
        (Verdict.XPASS, Verdict.UNEXPECTED, *map(Verdict, State), Verdict.FLAKY, Verdict.XFAIL)
    )
}
"""Unexpected ones worst first; the last two are expected."""

EXIT_MEANING: Mapping[int, str] = {
    0: "everything as expected",
    1: "product trouble: fail, overflow, crash, timeout, oom, refused! or xpass",
    2: "usage or matrix error",
    3: "only machine or harness trouble",
    4: "stopped early, can be resumed",
    5: "nothing selected",
    130: "interrupted",
}


def worst(states: Iterable[State]) -> State:
    """The first in the order of `State`; pass where there is none."""
    return min(states, key=BADNESS.__getitem__, default=State.PASS)


def of(outcome: CellOutcome) -> tuple[State, str]:
    """The state of a cell and, unless it passed, why: in the words of its worst case where a case says it."""
    found = [(case.state, _say(case)) for case in outcome.cases]
    if outcome.death:
        found.insert(0, _death(outcome.death, outcome))
    if outcome.infra:
        found.insert(0, (State.INFRA, outcome.infra))
    if outcome.not_run:
        found.append((State.NOT_RUN, "the run ended before this cell did"))
    if not found:
        return State.MISSING, "the cell ran to its end and reported no case"
    state = worst(state for state, _ in found)
    reason = next(reason for each, reason in found if each is state)
    if outcome.reruns:
        passed = outcome.reruns.count(State.PASS)
        reason = f"{'flaky' if passed else 'no flake'}: passed {passed} of {len(outcome.reruns)} reruns; {reason}"
    return state, reason


def _say(case: CaseResult) -> str:
    if case.state is State.PASS:
        return ""
    if case.message.strip():
        return case.message.strip()
    return describe(case.overflow[0]) if case.overflow else f"{case.name}: {case.state} without a message"


def describe(overflow: Overflow) -> str:
    """One overflow in one line; it needs no batch to be understood."""
    return (
        f"{overflow.buffer} needs {overflow.required} entries and has {overflow.allocated} "
        f"({overflow.how}, {len(overflow.batch.query_lens)} requests)"
    )


def _death(death: Death, outcome: CellOutcome) -> tuple[State, str]:
    if death.timed_out_after_s:
        silent = f" but silent for {death.silent_for_s:g} s" if death.silent_for_s else ""
        state, what = State.TIMEOUT, f"still running{silent}, and killed"
    elif death.worker:
        state, what = State.CRASH, f"its worker died {outcome.attempts} times while this cell ran: {death.worker}"
    elif death.out_of_memory:
        state, what = State.OOM, "killed for memory"
    elif death.signal == "SIGILL" and outcome.evidence is Evidence.CPU and not outcome.resolved.get("isa"):
        state, what = State.INFRA, f"killed by SIGILL: {ILLEGAL}"
    elif death.signal:
        state, what = State.CRASH, f"killed by {death.signal}"
    elif death.exit_code == INTERNAL_ERROR:
        state, what = State.MISSING, f"pytest could not finish the cell (exit code {INTERNAL_ERROR}), see its log"
    elif death.exit_code:
        state, what = State.CRASH, f"the process ended by itself with exit code {death.exit_code}"
    else:
        state, what = State.MISSING, "the process ended with exit code 0 and without a result"
    # The worker gives the case that was running the state of the death; without one it died between the cases.
    case = next((case.name for case in outcome.cases if case.state is state), "")
    after = death.timed_out_after_s or outcome.duration_s
    return state, what + (f" in case {case}" if case else "") + (f" after {after:.1f} s" if after else "")


def totals(results: Sequence[CellResult], *, planned: int) -> dict[Verdict, int]:
    """How many cells have each verdict, worst first. Every planned cell has exactly one: anything else is our fault."""
    ids = Counter(result.id for result in results)
    twice = [id_ for id_, times in ids.items() if times > 1]
    if twice or len(results) != planned:
        # No assert statement: this holds under python -O too.
        raise AssertionError(f"{planned} cells planned, {len(results)} results, {len(twice)} cells twice: {twice[:3]}")
    counts = Counter(result.verdict for result in results)
    return {verdict: counts[verdict] for verdict in sorted(counts, key=VERDICT_ORDER.__getitem__)}


def exit_code(
    verdicts: Iterable[Verdict], *, interrupted: bool = False, stopped_early: bool = False, lacking: bool = False
) -> int:
    """What the run exits with; `EXIT_MEANING` says it in words. Product trouble wins over all but an interrupt.

    `lacking` says that a device was required that the machine has not.
    """
    seen = set(verdicts)
    faults = {verdict.fault for verdict in seen - {Verdict.NOT_RUN}}
    if interrupted:
        return 130
    if Fault.PRODUCT in faults:
        return 1
    if stopped_early:
        return 4
    if lacking or faults & {Fault.HARNESS, Fault.MACHINE}:
        return 3
    return 4 if Verdict.NOT_RUN in seen else 0
