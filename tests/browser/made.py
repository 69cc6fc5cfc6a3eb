"""A small made-up run that has every verdict and every kind of evidence."""

from dataclasses import replace

from runner.model import CellResult, Evidence, State, Verdict
from tests.unit import synthetic

AXES = {
    **synthetic.AXES,
    "backend": ("flashinfer", "flash_attn", "cpu_attn"),
    "arch": ("sm90", "sm100", "cpu"),
    "spec_k": (0, 3),
    "chunk": (64, 8192),
    "load": ("solo", "small"),
}
CELLS = 3 * 3 * 2 * 2 * 2 * 2


def rows() -> list[CellResult]:
    made = list(synthetic.results(AXES))
    assert len(made) == CELLS
    passed = [number for number, row in enumerate(made) if row.state is State.PASS]
    for number, verdict in zip(passed, Verdict, strict=False):
        state = State.FAIL if verdict in {Verdict.XFAIL, Verdict.FLAKY} else State.PASS
        state = State.REFUSED if verdict is Verdict.UNEXPECTED else state
        own = {Verdict.XFAIL, Verdict.FLAKY, Verdict.XPASS, Verdict.UNEXPECTED}
        state = state if verdict in own else State(verdict.value)
        made[number] = replace(
            made[number], verdict=verdict, state=state, reason="" if state is State.PASS else "so it is"
        )
    for number, evidence in zip(passed[::-1], Evidence, strict=False):
        made[number] = replace(made[number], evidence=evidence)
    assert {row.verdict for row in made} == set(Verdict)
    assert {row.evidence for row in made} == set(Evidence)
    return made
