"""What each verdict means: what can be in it and what cannot, each with the test that shows it.

docs/states.md and the table in README.md are made of this, by `python -m runner.reports.states`. Whose fault a verdict
is, and what a run exits with, are said in runner/model.py and runner/outcome.py alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from runner.model import Verdict

Shown = tuple[str, str]
"""A sentence, and the test that shows it: its file under tests/ and its name, with :: between them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Meaning:
    """What a verdict says of a cell."""

    short: str
    holds: tuple[Shown, ...]
    """What can be in it."""
    never: tuple[Shown, ...]
    """What cannot, and what that is instead."""
    next: str
    """What to do about it; empty where there is nothing to do."""


MEANINGS: Mapping[Verdict, Meaning] = {
    Verdict.XPASS: Meaning(
        short="known to be in trouble, but it passes now: the entry must change",
        holds=(
            (
                "a cell that passes where an entry under `known` expects trouble",
                "e2e/test_truths.py::test_what_is_known_and_passes_is_a_surprise_and_exits_1",
            ),
            (
                "a buffer that an entry names and that holds, beside one that does not",
                "unit/test_expectations.py::test_a_named_buffer_that_holds_is_a_surprise_beside_one_that_does_not",
            ),
        ),
        never=(
            (
                "a cell behind the last release of an entry: `pass`",
                "unit/test_expectations.py::test_a_pass_behind_the_last_release_is_what_was_hoped_for",
            ),
            (
                "a cell of which nothing was judged: its state stays",
                "unit/test_expectations.py::test_what_was_not_judged_neither_confirms_nor_refutes_an_issue",
            ),
            (
                "a cell whose deployment cannot overflow, and passes: `pass`",
                "unit/test_expectations.py::test_a_pass_where_the_deployment_cannot_overflow_is_a_pass",
            ),
        ),
        next="Change the entry by what a run shows: [known issues](known.md).",
    ),
    Verdict.UNEXPECTED: Meaning(
        short="vLLM refused the combination, and nobody expects this refusal",
        holds=(
            (
                "a refusal whose reason no entry under `expect` names",
                "unit/test_expectations.py::test_a_refusal_that_nobody_named_says_what_is_missing",
            ),
            (
                "a refusal where the release before passes, unless an entry that names releases names its reason",
                "unit/test_expectations.py::"
                "test_a_refusal_where_the_release_before_passed_needs_an_entry_that_names_the_release",
            ),
            (
                "the same where another job of a workflow saw the pass",
                "unit/test_ci_plan_and_gather.py::test_a_refusal_where_another_job_saw_the_release_before_pass_is_red",
            ),
            (
                "the same where another run did, in `runner history CELL`, `runner trend` and bisects",
                "unit/test_history_questions.py::test_a_refusal_where_the_release_before_passes_is_bad",
            ),
            (
                "a vLLM that supports no page size any more",
                "e2e/test_verdicts.py::test_a_vllm_that_supports_no_page_size_is_an_unexpected_refusal",
            ),
        ),
        never=(
            (
                "a refusal that a known issue covers: no entry under `known` makes a refusal expected",
                "unit/test_expectations.py::test_no_known_issue_makes_a_refusal_expected",
            ),
            (
                "what Python, torch or numpy raise in the midst of vLLM's code: `fail`",
                "unit/cases/test_refusals.py::test_what_comes_up_in_passing_is_none",
            ),
            (
                "a model that vLLM could not import (failed to be inspected): `fail`",
                "e2e/test_verdicts.py::"
                "test_a_model_that_cannot_be_imported_fails_every_cell_with_the_error_and_its_place",
            ),
            (
                "a backend that the release has not: a mistake of the matrix, exit 2",
                "e2e/test_verdicts.py::test_a_backend_that_the_release_has_not_is_a_mistake_of_the_matrix",
            ),
            (
                "a limit of the tiny model of the cases: it takes any load",
                "e2e/test_verdicts.py::test_a_load_longer_than_any_model_of_ours_runs",
            ),
        ),
        next="Find out whether vLLM is right. Where it is, name the reason under `expect` in matrix.yaml.",
    ),
    Verdict.CRASH: Meaning(
        short="the cell's process died",
        holds=(
            (
                "a signal, or an exit code, in the case that was running",
                "contract/test_behaviours.py::test_a_crash_takes_down_one_cell_and_is_named",
            ),
            ("a death between the cases", "unit/test_outcome.py::test_a_death_between_the_cases_names_none"),
            (
                "a cell that kills each worker that it is given",
                "contract/test_own_doing.py::"
                "test_a_cell_that_kills_each_of_its_workers_has_crashed_and_the_next_is_whole",
            ),
        ),
        never=(
            (
                "cases that the death kept from running: `not_run`",
                "contract/test_behaviours.py::test_the_case_after_a_crash_in_the_same_cell_did_not_run",
            ),
            (
                "a worker that was killed from outside: the cell is tried again, and then `infra`",
                "contract/test_behaviours.py::"
                "test_a_cell_whose_worker_is_killed_is_tried_twice_and_then_the_machines_fault",
            ),
            (
                "a process that ends with code 0 and without a result: `missing`",
                "contract/test_behaviours.py::test_an_exit_without_a_result_is_missing",
            ),
            (
                "an illegal instruction on a CPU before it is known which instructions compute: `infra`",
                "contract/test_behaviours.py::"
                "test_an_illegal_instruction_is_the_products_only_where_it_is_known_what_computes",
            ),
        ),
        next="Read the cell's log: it ends with the stack.",
    ),
    Verdict.OOM: Meaning(
        short="killed for memory, or out of it",
        holds=(
            (
                "a cell that the kernel killed at its limit of memory",
                "contract/test_docker.py::test_a_cell_that_eats_memory_is_oom_and_the_next_is_whole",
            ),
        ),
        never=(
            (
                "a cell that fills the disk: what its case says of that",
                "contract/test_hostile.py::test_a_full_disk_is_the_cells_own",
            ),
        ),
        next="Run the cell alone, with more memory, before you believe that vLLM needs it.",
    ),
    Verdict.TIMEOUT: Meaning(
        short="the cell's deadline passed, or it fell silent",
        holds=(
            (
                "a cell past its limit, with its stacks in the log",
                "contract/test_behaviours.py::test_a_timed_out_cell_shows_where_it_hung",
            ),
            (
                "a cell that says nothing for too long",
                "contract/test_behaviours.py::"
                "test_a_cell_that_says_nothing_is_ended_before_its_limit_and_one_that_speaks_is_not",
            ),
            (
                "a cell whose worker does not keep its time: the host ends it",
                "contract/test_behaviours.py::test_a_worker_that_does_not_keep_its_time_is_killed",
            ),
        ),
        never=(
            (
                "a run that has had its time (`--limit`): `not_run`",
                "faults/test_every_fault.py::test_a_run_that_has_had_its_time_ends_and_is_gone_on_with",
            ),
        ),
        next="Read the stacks at the end of the cell's log.",
    ),
    Verdict.OVERFLOW: Meaning(
        short="a buffer needs more than it has for a batch the scheduler may form",
        holds=(
            ("`raised`: an exception", "e2e/test_truths.py::test_paged_kv_indptr_raises_where_prefill_is_native"),
            (
                "`resized` or `short`: storage moved under a view, or a slice shorter than asked",
                "e2e/test_truths.py::test_cumulative_kv_lengths_are_short_without_a_word_on_the_sm100_family",
            ),
            (
                "several buffers at once, each with its smallest batch",
                "unit/test_results.py::test_overflow_that_two_cases_show_is_listed_once",
            ),
        ),
        never=(
            (
                "batches within what the buffers hold: `pass`",
                "e2e/test_truths.py::test_batches_within_capacity_pass_on_the_same_builders",
            ),
        ),
        next="The report has the buffer, what it needs and has, and the batch; `runner repro CELL` shows it again.",
    ),
    Verdict.FAIL: Meaning(
        short="a case asserted wrong, or vLLM raised where it should not",
        holds=(
            (
                "an assertion of a case, with its line",
                "contract/test_behaviours.py::test_a_false_assertion_fails_and_names_its_line",
            ),
            (
                "an option that vLLM takes and does otherwise without a word, such as a KV dtype",
                "e2e/test_routes.py::test_an_fp8_cache_that_the_layer_drops_is_a_fault_of_vllm",
            ),
            (
                "another fault of vLLM in a case that finds a known overflow too",
                "unit/test_expectations.py::"
                "test_what_went_wrong_with_another_batch_does_not_hide_behind_a_known_overflow_of_its_case",
            ),
            (
                "a candidate that brings back a fault of the past",
                "e2e/test_engine.py::test_a_fault_of_the_past_turns_its_cell_red",
            ),
            (
                "a candidate that cannot be imported",
                "unit/test_dispatch.py::"
                "test_a_candidate_that_cannot_be_imported_is_the_products_and_its_release_is_none_the_worse",
            ),
            (
                "a cell that reports nonsense",
                "contract/test_own_doing.py::test_a_cell_that_reports_nonsense_has_failed_once_and_the_next_is_whole",
            ),
            (
                "a value that breaks its contract where it enters the cases: vLLM handed over …",
                "e2e/test_verdicts.py::test_a_boolean_for_the_draft_mask_is_what_vllm_handed_over",
            ),
            (
                "a model that vLLM could not import, with the error and the line",
                "e2e/test_verdicts.py::"
                "test_a_model_that_cannot_be_imported_fails_every_cell_with_the_error_and_its_place",
            ),
        ),
        never=(
            (
                "a flake that is taken for a pass: the first failure stays, and the reason says how often it passed",
                "unit/test_session.py::test_a_flake_is_told_and_stays_red",
            ),
            (
                "an inspection of a model that was killed: tried again, and then `infra`",
                "e2e/test_verdicts.py::test_a_killed_inspection_is_the_machines",
            ),
        ),
        next="The report has vLLM's file, line and words; `runner repro CELL` shows it again.",
    ),
    Verdict.SUBSTITUTED: Meaning(
        short="another backend, kernel or device ran than the cell's",
        holds=(
            (
                "vLLM turns off what the cell asks for, and says so",
                "e2e/test_routes.py::test_what_it_is_served_by_is_recorded",
            ),
            (
                "cells of a GPU's arch on a machine whose Python finds no device",
                "e2e/test_on_a_gpu.py::test_the_cells_of_the_gpus_arch_run_with_evidence_device",
            ),
        ),
        never=(
            (
                "a cell that the release before judged, as unchanged: `runner compare A B` says that it got worse",
                "unit/test_compare.py::test_a_case_that_passed_and_gives_no_verdict_now_got_worse",
            ),
        ),
        next="`resolved` of the result says what ran. A substitution that vLLM documents is excluded by a rule.",
    ),
    Verdict.MISSING: Meaning(
        short="it ran and left no result",
        holds=(
            (
                "a process that ends with code 0 and without a result",
                "contract/test_behaviours.py::test_an_exit_without_a_result_is_missing",
            ),
            ("a cell without any case", "unit/test_outcome.py::test_a_cell_without_case_and_without_death_is_missing"),
            (
                "a job without a GPU that claims to have used one",
                "unit/test_ci_plan_and_gather.py::test_a_hosted_job_that_claims_a_device_is_not_believed",
            ),
        ),
        never=(
            (
                "a case that passed before, as unchanged: `runner compare A B` says that it got worse",
                "unit/test_compare.py::test_a_case_that_passed_and_gives_no_verdict_now_got_worse",
            ),
            (
                "a fix: nothing is fixed because it was not judged",
                "unit/test_compare.py::test_nothing_is_fixed_because_it_was_not_judged",
            ),
            (
                "what vLLM hands over and what breaks its contract: `fail`",
                "e2e/test_verdicts.py::test_attention_groups_that_are_lost_are_what_vllm_handed_over",
            ),
        ),
        next="Read the cell's log. Where the cases do not know something of a new vLLM, they must learn it.",
    ),
    Verdict.INFRA: Meaning(
        short="no container, no image, no device, a full disk",
        holds=(
            (
                "a worker that was killed twice from outside",
                "contract/test_behaviours.py::"
                "test_a_cell_whose_worker_is_killed_is_tried_twice_and_then_the_machines_fault",
            ),
            (
                "a package that a release imports and its lock lacks",
                "e2e/test_added_values.py::"
                "test_a_package_that_the_lock_lacks_is_the_environments_trouble_with_one_cause",
            ),
            (
                "cases that cannot be imported, or do not know this release of vLLM",
                "contract/test_local.py::test_cases_that_do_not_import_are_infra_with_the_reason",
            ),
            (
                "an environment that holds another release than it says",
                "unit/test_dispatch.py::"
                "test_an_environment_that_holds_another_release_runs_nothing_under_the_wrong_name",
            ),
            (
                "an image that is not there",
                "contract/test_docker.py::test_an_image_that_is_not_there_is_infra_with_its_name",
            ),
            (
                "a cell whose machine broke meanwhile, even if some of its cases passed",
                "unit/test_outcome.py::test_a_machine_that_could_not_run_the_cell_is_infra_even_with_passed_cases",
            ),
            (
                "an inspection of a model that was killed, or had no room",
                "e2e/test_verdicts.py::test_a_killed_inspection_is_the_machines",
            ),
            (
                "a CPU that takes no instruction of the kernel",
                "unit/test_outcome.py::test_a_machine_that_takes_no_instruction_of_the_kernel_is_told_what_to_do",
            ),
        ),
        never=(
            (
                "a cell that crashes by itself: `crash`",
                "contract/test_behaviours.py::test_a_crash_takes_down_one_cell_and_is_named",
            ),
            (
                "nonsense that a cell reports: `fail`",
                "contract/test_own_doing.py::test_a_cell_that_reports_nonsense_has_failed_once_and_the_next_is_whole",
            ),
        ),
        next="Mend the machine; `runner resume RUN` tries these cells again. `runner doctor` says what is missing.",
    ),
    Verdict.NOT_RUN: Meaning(
        short="the run ended before it",
        holds=(
            (
                "cells that a stopped or interrupted run did not reach",
                "unit/test_outcome.py::test_a_cell_that_the_run_did_not_reach_is_not_run",
            ),
            (
                "cells of a job that left no results",
                "unit/test_ci_plan_and_gather.py::test_a_job_that_left_nothing_is_not_run_and_machine_trouble",
            ),
        ),
        never=(
            (
                "a case that a death kept from running, as a cell's state: that is the death's",
                "unit/test_expectations.py::test_cases_that_a_known_crash_kept_from_running_are_no_news",
            ),
        ),
        next="`runner resume RUN` goes on.",
    ),
    Verdict.SKIPPED: Meaning(
        short="asked for, but no such device here, or known to crash",
        holds=(
            (
                "a cell that only a device can judge, where there is none",
                "unit/test_session.py::test_a_cell_without_a_device_is_emulated_or_skipped_as_asked",
            ),
            (
                "a cell that is known to take its process down",
                "unit/test_session.py::test_cells_that_are_known_to_crash_are_not_run_unless_asked",
            ),
            (
                "a job that no machine took in time",
                "unit/test_ci_plan_and_gather.py::test_a_job_that_no_machine_took_is_missing_evidence",
            ),
        ),
        never=(
            (
                "evidence for a sign-off, or a verdict in a comparison: what was judged before is lost, exit 3",
                "unit/test_compare.py::test_a_case_that_the_machine_kept_from_being_judged_is_lost_and_not_worse",
            ),
        ),
        next="With `--require-device` a run that skipped a cell for want of a device exits with 3.",
    ),
    Verdict.REFUSED: Meaning(
        short="vLLM refused the combination before work, for a reason that the matrix names",
        holds=(
            (
                "a refusal whose words an entry under `expect` has for this cell; the entry says why, in `expected`",
                "unit/test_expectations.py::test_a_refusal_is_clean_only_where_an_entry_names_its_reason",
            ),
        ),
        never=(
            (
                "any other refusal: `refused!`",
                "unit/test_expectations.py::test_a_refusal_that_nobody_named_says_what_is_missing",
            ),
            (
                "something unchanged where the base passed: `runner compare A B` says `regressed`, always",
                "unit/test_compare.py::test_a_refusal_of_what_passed_is_a_regression",
            ),
        ),
        next="",
    ),
    Verdict.UNSUPPORTED: Meaning(
        short="a rule of the matrix excludes it",
        holds=(
            (
                "a cell that a rule excludes, with the rule's reason; it is never run",
                "unit/test_plan.py::test_what_a_rule_excludes_is_kept_aside_and_never_ordered",
            ),
        ),
        never=(
            (
                "what vLLM itself refuses: `refused` or `refused!`",
                "unit/test_expectations.py::test_a_refusal_that_nobody_named_says_what_is_missing",
            ),
        ),
        next="",
    ),
    Verdict.PASS: Meaning(
        short="every case held",
        holds=(
            (
                "a cell all of whose cases passed",
                "unit/test_outcome.py::test_a_cell_whose_cases_pass_passes_without_a_reason",
            ),
        ),
        never=(
            (
                "a cell without a case: `missing`",
                "unit/test_outcome.py::test_a_cell_without_case_and_without_death_is_missing",
            ),
            (
                "a cell with any case in trouble, or without a verdict: the worst of its cases",
                "unit/test_outcome.py::test_a_cell_takes_state_and_words_of_its_worst_case",
            ),
        ),
        next="",
    ),
    Verdict.FLAKY: Meaning(
        short="known to come and go",
        holds=(
            (
                "a pass, or the trouble that the entry names, where an entry has `flaky: true`",
                "unit/test_expectations.py::test_a_flaky_entry_tolerates_both_ways_and_counts",
            ),
        ),
        never=(
            (
                "any other trouble: its state stays",
                "unit/test_expectations.py::test_a_flaky_entry_tolerates_nothing_else",
            ),
            (
                "a cell that comes and goes and that nobody has named: the first failure stays",
                "unit/test_session.py::test_a_flake_is_told_and_stays_red",
            ),
        ),
        next="",
    ),
    Verdict.XFAIL: Meaning(
        short="in trouble that is known, and still so",
        holds=(
            (
                "a cell in which entries under `known` cover everything bad",
                "unit/test_expectations.py::test_a_known_state_is_expected_and_carries_its_link",
            ),
            (
                "and what else was judged in it, which reports say",
                "unit/test_reports_behind.py::"
                "test_a_cell_says_what_the_known_issue_explains_what_passed_and_what_could_not_judge",
            ),
        ),
        never=(
            (
                "a new failure beside the known one: its own state",
                "unit/test_expectations.py::test_a_new_failure_does_not_hide_behind_a_known_overflow_of_the_same_cell",
            ),
            (
                "another buffer, or another way of overflowing: `overflow`",
                "unit/test_expectations.py::test_a_new_buffer_does_not_hide_behind_a_known_one",
            ),
            (
                "trouble of an entry that has expired: its own state",
                "unit/test_session.py::test_an_expired_known_issue_is_red_and_named",
            ),
        ),
        next="",
    ),
}
