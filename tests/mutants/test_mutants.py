"""The cases can fail: each mutant changes the verdict of some case, and the page in docs/ says which."""

from collections.abc import Iterator

import pytest

from tests.mutants import table
from tests.mutants.client import Cases, running
from tests.mutants.everything import MUTANTS
from tests.mutants.mutants import Mutant

pytestmark = [pytest.mark.env, pytest.mark.timeout(600), pytest.mark.xdist_group("mutants")]

FOUND_ELSEWHERE = ("test_batches_that_vllm_makes_up_fit_and_are_right", "test_random_batches_fit_and_are_right")
"""The cases that find the same overflows by other batches."""
UNWATCHED = "test_each_layer_has_the_builder_of_its_kind"
"""Builds for another purpose, and watches no buffer: what a stand-in raises is `missing` there."""

OTHER_LAYERS = "test_builders_of_other_layers_hold_their_worst_batches"

RED = {
    "": {
        "test_paged_kv_buffers_hold_the_worst_batches",
        "test_draft_mask_has_a_row_for_each_window",
        "test_prefill_lengths_have_an_entry_for_each_row",
        "test_builder_buffers_hold_the_worst_batches",
        "test_no_kernel_reads_past_an_end",
        *FOUND_ELSEWHERE,
    },
    "sized by virtual batches": set(),
    "sized by virtual batches, short by one": {"test_paged_kv_buffers_hold_the_worst_batches", *FOUND_ELSEWHERE},
    "indices short by one": {
        "test_paged_kv_buffers_hold_batches_without_a_split",
        "test_paged_kv_buffers_hold_the_worst_batches",
        UNWATCHED,
        OTHER_LAYERS,
    },
    "an array is written past its end": {
        "test_paged_kv_buffers_hold_batches_without_a_split",
        "test_paged_kv_buffers_hold_the_worst_batches",
        *FOUND_ELSEWHERE,
        OTHER_LAYERS,
    },
}
"""The cases that may be red without a mutant: what vLLM is known for, and what a correction is made to show."""


@pytest.fixture(scope="module")
def cases() -> Iterator[Cases]:
    with running() as found:
        yield found


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_mutant_is_caught_by_what_the_page_says(mutant: Mutant, cases: Cases) -> None:
    caught = cases.caught(mutant)
    assert caught, f"no case noticed: {mutant.name}"
    assert table.line(mutant, caught) in table.PAGE.read_text(), (
        f"run `python -m tests.mutants`; the cases said {caught}"
    )


def test_without_a_mutant_only_the_known_is_red(cases: Cases) -> None:
    """A case that is red anyway would prove nothing."""
    for cell, correction in sorted({(cell, m.correction) for m in MUTANTS for cell in m.cells}):
        verdicts = cases.baseline([cell], correction)[cell]
        red = {case: v for case, v in verdicts.items() if v["state"] != "pass"}
        assert red.keys() <= RED[correction], f"{cell}, {correction or 'as released'}: {red}"
        assert all(v["state"] == "overflow" for case, v in red.items() if case != UNWATCHED), red


def test_the_page_speaks_of_these_mutants_only() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names)) >= 25
    lines = table.PAGE.read_text().removeprefix(table.HEAD).splitlines()
    assert [line.split("|")[1].strip() for line in lines] == names
