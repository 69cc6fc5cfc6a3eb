"""The tables of `runner overflows`: nothing claimed that was not seen, nothing seen left out."""

from runner.model import How, State
from runner.reports import overflows
from tests.unit.synthetic import cell, overflow, overflowed


def ran(vllm, arch, k, *cases, state=State.OVERFLOW, backend="flashinfer"):
    return cell(state, *cases, axes={"vllm": vllm, "arch": arch, "spec_k": k, "backend": backend})


def lines(results):
    return [line for line in overflows.render(results).splitlines() if line.startswith("|")]


def test_a_table_has_a_row_per_release_and_a_column_per_arch():
    rows = [
        ran("0.28.0", "sm80", 0, state=State.PASS),
        ran("0.28.0", "sm90", 0, overflowed("a", overflow(How.RAISED))),
    ]
    assert lines(rows) == [
        "| vLLM | sm80 | sm90 |",
        "| --- | --- | --- |",
        "| 0.28.0 | holds | `paged_kv_indptr` raised |",
    ]


def test_what_only_some_cells_show_carries_its_condition():
    short = overflowed("a", overflow(How.SHORT, buffer="mask"))
    rows = [ran("0.28.0", "sm90", k, state=State.PASS) for k in (0, 1)] + [
        ran("0.28.0", "sm90", k, short) for k in (2, 3)
    ]
    assert lines(rows)[-1] == "| 0.28.0 | `mask` short (k2,3) |"


def test_neighbouring_releases_that_say_the_same_share_a_row():
    same = overflowed("a", overflow())
    rows = [ran(v, "sm90", 0, same) for v in ("0.27.1", "0.28.0", "0.29.0")] + [
        ran("0.30.0", "sm90", 0, state=State.PASS),
        ran("0.31.0", "sm90", 0, same),
    ]
    assert lines(rows)[2:] == [
        "| 0.27.1 to 0.29.0 | `paged_kv_indptr` raised |",
        "| 0.30.0 | holds |",
        "| 0.31.0 | `paged_kv_indptr` raised |",
    ]


def test_other_states_are_words_and_a_missing_cell_is_no_claim():
    rows = [
        ran("0.28.0", "sm90", 0, state=State.REFUSED),
        ran("0.29.0", "sm90", 0, state=State.FAIL),
        ran("0.29.0", "sm80", 0, state=State.PASS),
        ran("0.28.0", "sm100", 0, state=State.UNSUPPORTED),
    ]
    assert lines(rows) == [
        "| vLLM | sm90 | sm80 |",
        "| --- | --- | --- |",
        "| 0.28.0 | refused | - |",
        "| 0.29.0 | fail | holds |",
    ]


def test_a_name_cannot_leave_its_table_cell():
    rows = [ran("0.28.0", "sm90", 0, overflowed("a", overflow(buffer="x|y`<b>")))]
    assert lines(rows)[-1] == "| 0.28.0 | ``x\\|y`<b>`` raised |"
