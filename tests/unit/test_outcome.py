"""The states, their order, their sums and the exit codes."""

from dataclasses import replace

import pytest

from runner import outcome
from runner.model import (
    Batch,
    CaseResult,
    Cell,
    CellOutcome,
    CellResult,
    Death,
    Evidence,
    How,
    Overflow,
    State,
    Verdict,
)
from tests.loads import SOLO

CELL = Cell(id="a-b", axes={"k": 3}, labels={"k": "k3"}, load=SOLO)
OVERFLOW = Overflow(
    buffer="paged_kv_indptr",
    required=6,
    allocated=2,
    how=How.RAISED,
    batch=Batch(query_lens=(320,), seq_lens=(320,)),
)


def raw(*states, **facts):
    cases = tuple(
        CaseResult(name=f"test_{i}", state=state, message=f"message {i}") if isinstance(state, State) else state
        for i, state in enumerate(states)
    )
    return CellOutcome(cell=CELL, evidence=Evidence.EMULATED, cases=cases, **facts)


def result(id_, verdict):
    state = State(verdict.value) if verdict.value in set(State) else State.PASS
    return CellResult(id=id_, axes={}, state=state, verdict=verdict, evidence=Evidence.CPU)


def test_the_order_of_badness_is_the_one_of_the_contract():
    words = "crash oom timeout overflow fail substituted missing infra not_run skipped refused unsupported pass"
    assert [str(state) for state in State] == words.split()
    assert outcome.worst([State.PASS, State.FAIL, State.OVERFLOW, State.REFUSED]) is State.OVERFLOW
    assert outcome.worst([]) is State.PASS


def test_every_verdict_has_a_place_in_the_order():
    assert set(outcome.VERDICT_ORDER) == set(Verdict)


def test_a_cell_whose_cases_pass_passes_without_a_reason():
    assert outcome.of(raw(State.PASS, State.PASS)) == (State.PASS, "")


def test_a_cell_takes_state_and_words_of_its_worst_case():
    assert outcome.of(raw(State.PASS, State.FAIL, State.OVERFLOW, State.FAIL)) == (State.OVERFLOW, "message 2")


def test_an_overflow_without_a_message_is_put_into_words():
    silent = CaseResult(name="test_x", state=State.OVERFLOW, overflow=(OVERFLOW,))
    assert outcome.of(raw(silent))[1] == "paged_kv_indptr needs 6 entries and has 2 (raised, 1 requests)"


def test_a_cell_without_case_and_without_death_is_missing():
    state, reason = outcome.of(raw())
    assert state is State.MISSING
    assert "no case" in reason


@pytest.mark.parametrize(
    ("death", "state", "words"),
    [
        (Death(signal="SIGSEGV"), State.CRASH, "killed by SIGSEGV in case test_1 after 0.2 s"),
        (Death(exit_code=3), State.CRASH, "exit code 3 in case test_1"),
        (Death(out_of_memory=True), State.OOM, "killed for memory in case test_1"),
        (Death(worker="killed by SIGKILL"), State.CRASH, "its worker died 0 times while this cell ran: killed by SIGK"),
        (Death(timed_out_after_s=60.0), State.TIMEOUT, "killed in case test_1 after 60.0 s"),
        (Death(), State.MISSING, "without a result"),
    ],
)
def test_a_death_says_how_where_and_when(death, state, words):
    found, reason = outcome.of(raw(State.PASS, state, State.NOT_RUN, death=death, duration_s=0.2))
    assert found is state
    assert words in reason


def test_a_machine_that_takes_no_instruction_of_the_kernel_is_told_what_to_do():
    cpu = replace(raw(State.INFRA, death=Death(signal="SIGILL")), evidence=Evidence.CPU)
    state, reason = outcome.of(cpu)
    assert state is State.INFRA
    assert "take builds of torch and vLLM for this CPU" in reason
    assert outcome.of(replace(cpu, resolved={"isa": "vec"}))[0] is State.CRASH
    assert outcome.of(replace(cpu, evidence=Evidence.EMULATED))[0] is State.CRASH


def test_a_death_between_the_cases_names_none():
    assert (
        outcome.of(raw(State.PASS, death=Death(signal="SIGKILL"), duration_s=1.0))[1] == "killed by SIGKILL after 1.0 s"
    )


def test_a_machine_that_could_not_run_the_cell_is_infra_even_with_passed_cases():
    assert outcome.of(raw(State.PASS, infra="the daemon went away")) == (State.INFRA, "the daemon went away")


def test_a_cell_that_the_run_did_not_reach_is_not_run():
    assert outcome.of(raw(not_run=True))[0] is State.NOT_RUN


def test_totals_add_up_and_come_worst_first():
    results = [
        result("a", Verdict.PASS),
        result("b", Verdict.XFAIL),
        result("c", Verdict.CRASH),
        result("d", Verdict.PASS),
    ]
    totals = outcome.totals(results, planned=4)
    assert list(totals.items()) == [(Verdict.CRASH, 1), (Verdict.PASS, 2), (Verdict.XFAIL, 1)]


@pytest.mark.parametrize("ids", [["a"], ["a", "a"], ["a", "b", "c"]])
def test_totals_refuse_a_cell_that_is_lost_or_counted_twice(ids):
    with pytest.raises(AssertionError, match="2 cells planned"):
        outcome.totals([result(id_, Verdict.PASS) for id_ in ids], planned=2)


V = Verdict


@pytest.mark.parametrize(
    ("verdicts", "flags", "code"),
    [
        ([], {}, 0),
        ([V.PASS, V.XFAIL, V.FLAKY, V.REFUSED, V.UNSUPPORTED, V.SKIPPED], {}, 0),
        *[([V.PASS, bad], {}, 1) for bad in (V.FAIL, V.OVERFLOW, V.CRASH, V.TIMEOUT, V.OOM, V.XPASS)],
        *[([V.PASS, bad], {}, 3) for bad in (V.INFRA, V.MISSING, V.SUBSTITUTED)],
        ([V.INFRA, V.XPASS], {}, 1),
        ([V.INFRA, V.NOT_RUN], {}, 3),
        ([V.PASS, V.NOT_RUN], {}, 4),
        ([V.PASS, V.NOT_RUN], {"stopped_early": True}, 4),
        ([V.INFRA, V.NOT_RUN], {"stopped_early": True}, 4),
        ([V.FAIL, V.NOT_RUN], {"stopped_early": True}, 1),
        ([V.FAIL, V.NOT_RUN], {"interrupted": True}, 130),
        ([V.PASS], {"interrupted": True}, 130),
    ],
)
def test_the_exit_code_says_whose_trouble_it_is(verdicts, flags, code):
    assert outcome.exit_code(verdicts, **flags) == code
    assert code in outcome.EXIT_MEANING
