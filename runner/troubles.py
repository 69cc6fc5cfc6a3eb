"""What is wrong with the product in one cell, and how bad that is. Pure; known issues are left aside."""

from dataclasses import dataclass, field
from enum import IntEnum

from runner.model import CellResult, Fault, How, State, Verdict

THE_CELL = ""
"""Stands where a case's name does for what befell a cell as a whole."""


class Harm(IntEnum):
    """How bad trouble is for whom it befalls: what nobody notices is worse than what stops the engine."""

    NONE = 0
    LATENT = 1
    """No batch that was tried reaches it."""
    REFUSED = 2
    """A refusal that nobody expects: loud, and before any work."""
    RAISED = 3
    """An exception: loud, and nothing is wrong before it."""
    WRONG = 4
    """A case asserted wrong."""
    DEATH = 5
    """The process is gone: crash, timeout, oom."""
    MISLED = 6
    """Resized or short: a kernel is given storage that is not what it believes, and nothing says so."""
    SILENT = 7
    """A write landed outside of its buffer, and nothing says so."""


_HARM_OF_HOW = {
    How.LATENT: Harm.LATENT,
    How.RAISED: Harm.RAISED,
    How.RESIZED: Harm.MISLED,
    How.SHORT: Harm.MISLED,
    How.SILENT: Harm.SILENT,
}
_HARM_OF_STATE = {
    State.FAIL: Harm.WRONG,
    State.OVERFLOW: Harm.RAISED,  # without a word of how
    State.CRASH: Harm.DEATH,
    State.OOM: Harm.DEATH,
    State.TIMEOUT: Harm.DEATH,
}


@dataclass(frozen=True, order=True, slots=True)
class Trouble:
    """One bad thing in a cell: an overflow by its buffer and how it showed, else a state by the case that has it."""

    what: str
    where: str
    harm: Harm = field(compare=False)

    def __str__(self) -> str:
        return f"{self.what} in {self.where}" if self.where else self.what


def troubles(row: CellResult) -> tuple[Trouble, ...]:
    """What is wrong with the product in a cell, most harmful first; empty where nothing is."""
    if row.verdict is Verdict.UNEXPECTED:
        return (Trouble(row.verdict.value, THE_CELL, Harm.REFUSED),)
    if row.state.fault is not Fault.PRODUCT:
        return ()
    found = {Trouble(f"overflow {o.how}", o.buffer, _HARM_OF_HOW[o.how]) for o in row.overflow}
    found |= {
        Trouble(case.state.value, case.name, _HARM_OF_STATE[case.state])
        for case in row.cases
        if case.state.fault is Fault.PRODUCT and not (case.state is State.OVERFLOW and case.overflow)
    }
    if not found:
        found = {Trouble(row.state.value, THE_CELL, _HARM_OF_STATE[row.state])}
    return tuple(sorted(found, key=lambda one: (-one.harm, one)))


def harm(row: CellResult | None) -> Harm:
    """The worst in a cell."""
    return max((one.harm for one in troubles(row)), default=Harm.NONE) if row is not None else Harm.NONE


def says(state: State) -> bool:
    """Whether a state is a verdict about vLLM: it passed, broke, or refused."""
    return state in {State.PASS, State.REFUSED} or state.fault is Fault.PRODUCT


def judged(row: CellResult | None) -> bool:
    """Whether vLLM had a say in a cell, be it in one case alone."""
    return row is not None and (says(row.state) or any(says(case.state) for case in row.cases))
