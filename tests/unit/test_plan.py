"""Plans: which evidence each cell will give, how cells are grouped, and that none is lost on the way."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import UsageError
from runner.expand import cells
from runner.matrix import Matrix
from runner.model import Evidence
from runner.plan import from_json, make_plan, to_json, to_rows
from runner.select import select

NO_DEVICE: frozenset[str] = frozenset()


def evidence_by_arch(chart: Matrix, archs: frozenset[str]) -> dict[object, Evidence]:
    return {p.cell.axes["arch"]: p.evidence for p in make_plan(cells(chart), device_archs=archs).planned}


def test_without_a_device_everything_is_emulated_but_the_cpu(small: Matrix) -> None:
    expected = {"sm90": Evidence.EMULATED, "sm100": Evidence.EMULATED, "cpu": Evidence.CPU}
    assert evidence_by_arch(small, NO_DEVICE) == expected


def test_a_device_serves_cells_of_its_own_arch_alone(small: Matrix) -> None:
    on_device = {"sm90": Evidence.DEVICE, "sm100": Evidence.EMULATED, "cpu": Evidence.CPU}
    assert evidence_by_arch(small, frozenset({"sm90"})) == on_device


def test_orders_group_what_one_environment_can_run_with_one_kind_of_evidence(small: Matrix) -> None:
    plan = make_plan(cells(small), device_archs=frozenset({"sm100"}))
    assert [(o.environment, o.evidence, len(o.cells)) for o in plan.orders] == [
        ("0.32.0", Evidence.EMULATED, 24),
        ("0.32.0", Evidence.DEVICE, 24),
        ("0.32.0", Evidence.CPU, 12),
    ]


def test_without_a_device_it_depends_on_what_computes_what_the_evidence_is(shipped: Matrix) -> None:
    chosen = select(shipped, filters=["k0,c64,small,hybrid_on", "sm90,cpu", "metadata,forward,engine"])
    found = {
        (p.cell.axes["case"], p.cell.axes["backend"]): p.evidence.value
        for p in make_plan(chosen, device_archs=NO_DEVICE).planned
        if not p.cell.unsupported
    }
    python_alone = dict.fromkeys(("flashinfer", "flash_attn", "triton_attn", "flex_attention"), "emulated")
    assert found == {
        **{("metadata", backend): evidence for backend, evidence in python_alone.items()},
        **{("forward", backend): evidence for backend, evidence in python_alone.items()},
        **{("engine", backend): evidence for backend, evidence in python_alone.items()},
        **{(case, "cpu_attn"): "cpu" for case in ("metadata", "forward", "engine")},
        ("forward", "triton_attn"): "interpreted",
        ("engine", "triton_attn"): "interpreted",
    }


def test_cells_of_two_devices_are_two_orders(small: Matrix) -> None:
    orders = make_plan(cells(small), device_archs=frozenset({"sm90", "sm100"})).orders
    on_devices = [order for order in orders if order.evidence is Evidence.DEVICE]
    assert sorted((order.arch, {str(c.axes["arch"]) for c in order.cells}) for order in on_devices) == [
        ("sm100", {"sm100"}),
        ("sm90", {"sm90"}),
    ]
    assert len({order.worker for order in on_devices}) == 2


def test_cells_that_are_judged_by_other_cases_have_workers_of_their_own(shipped: Matrix) -> None:
    chosen = select(shipped, filters=["sm90,k0,c64,small,hybrid_on", "metadata,forward,engine"])
    orders = make_plan(chosen, device_archs=NO_DEVICE).orders
    assert {order.worker for order in orders} == {
        ("0.32.0", "metadata", ""),
        ("0.32.0", "forward", ""),
        ("0.32.0", "forward", "interpreted"),
        ("0.32.0", "engine", ""),
        ("0.32.0", "engine", "interpreted"),
    }


def test_what_a_rule_excludes_is_kept_aside_and_never_ordered(small: Matrix) -> None:
    plan = make_plan(cells(small), device_archs=NO_DEVICE)
    assert {p.cell.unsupported for p in plan.unsupported} == {"no GPU"}
    assert len(plan.unsupported) == 12
    assert all(not cell.unsupported for order in plan.orders for cell in order.cells)


@given(archs=st.frozensets(st.sampled_from(["sm90", "sm100", "sm120"])))
@settings(max_examples=20, deadline=None)
def test_totals_add_up_and_a_plan_survives_its_file(archs: frozenset[str], shipped: Matrix) -> None:
    everything = list(cells(shipped))[::11]
    plan = make_plan(everything, device_archs=archs)
    assert sum(len(order.cells) for order in plan.orders) + len(plan.unsupported) == len(everything)
    assert [planned.cell for planned in plan.planned] == everything
    assert from_json(to_json(plan)) == plan


def test_a_row_holds_what_the_cases_and_a_reader_need(small: Matrix) -> None:
    plan = make_plan(cells(small), device_archs=NO_DEVICE)
    row = json.loads(to_json(plan))[0]
    assert row == to_rows(plan)[0]
    assert row["id"] == "0.32.0-flashinfer-sm90-hybrid_on-k0-c64-solo"
    assert row["axes"]["spec_k"] == 0
    assert row["labels"]["spec_k"] == "k0"
    assert row["load"]["name"] == "solo"
    assert (row["unsupported"], row["evidence"]) == ("", "emulated")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[{}]",
        "[1]",
        '[{"id": "a", "axes": {}, "labels": {}, "load": {}, "unsupported": "", "evidence": "x"}]',
    ],
)
def test_a_file_that_is_no_plan_is_refused_in_words(text: str) -> None:
    with pytest.raises(UsageError, match=r"plan\.json is not a plan"):
        from_json(text)


def test_a_plan_with_an_unknown_field_is_refused(small: Matrix) -> None:
    rows = to_rows(make_plan(cells(small), device_archs=NO_DEVICE))
    with pytest.raises(UsageError, match=r"0\.surprise"):
        from_json(json.dumps([rows[0] | {"surprise": 1}]))


def test_a_cell_that_nobody_wants_to_run_is_planned_and_never_ordered(small: Matrix) -> None:
    def skip(cell):
        return "crashes" if cell.axes["spec_k"] == 3 else ""

    plan = make_plan(cells(small), device_archs=NO_DEVICE).skipping(skip)
    assert len(plan.skipped) == 20, "72 cells, a third of them k3, of which a rule excludes 4"
    assert {one.cell.axes["spec_k"] for one in plan.skipped} == {3}
    assert not any(one.cell.unsupported for one in plan.skipped)
    ordered = [cell for order in plan.orders for cell in order.cells]
    lacking = make_plan(cells(small), device_archs=NO_DEVICE, device_only="none").skipping(skip)
    assert {one.skipped for one in lacking.skipped} == {
        f"there is no {a} device here: none" for a in small.axes["arch"]
    }
    assert len(plan.planned) == len(ordered) + len(plan.skipped) + len(plan.unsupported)
    assert not any(skip(cell) for cell in ordered)
    assert from_json(to_json(plan)) == plan
    assert all("skipped" not in row for row in to_rows(make_plan(cells(small), device_archs=NO_DEVICE)))
