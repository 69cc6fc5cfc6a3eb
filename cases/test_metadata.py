"""All that a build returns: the rows by the definition, tensors as long as the batch, nothing older."""

from typing import Any

import pytest

from cases import batches, extents, kernel_inputs, metadata, vllm_api
from cases.batches import Named
from cases.cell import Cell
from cases.extents import Auditor, Built


@pytest.mark.kind("what kernels are told")
def test_kernels_are_told_the_rows_of_the_definition(cell: Cell, auditor: Auditor) -> None:
    """Query tokens, keys and pages of each row, and every tensor as long as the batch has rows, tokens or pages.

    On large batches and then small ones: nothing of the large may stay.
    """
    for n in _batches(cell):
        if built := _clean(auditor, n):
            found = metadata.fields(built.metadata, auditor.builder)
            pages = int(extents.read(built.step.block_table_tensor).max()) + 1
            wrong = list(kernel_inputs.wrong(built, auditor.deployment))
            wrong += metadata.wrong(found, built.metadata, built.need, pages)
            assert not wrong, f"{n.name}: {'; '.join(wrong)}; batch: {n.batch}"


@pytest.mark.kind("nothing left behind")
def test_a_build_leaves_nothing_behind(cell: Cell, auditor: Auditor) -> None:
    """A large batch, a small one, the large one again: the same as the first time, the small one as of a fresh builder.

    The builder that is used has built all sorts of batches before.
    """
    by_rows = sorted(_batches(cell), key=lambda n: auditor.need(n.batch).count)
    small = next(built for n in by_rows if (built := _clean(auditor, n)))
    large = next(built for n in reversed(by_rows) if (built := _clean(auditor, n)))
    deployment, used = auditor.deployment, auditor.builder
    first = _said(deployment, used, large)
    for size, built, said in (
        ("small", small, _said(deployment, deployment.new_builder(), small)),
        ("large", large, first),
    ):
        changed = list(metadata.differences(said, _said(deployment, used, built)))
        assert not changed, f"a {size} batch after the other: {'; '.join(changed)}; batch: {built.batch}"


def _batches(cell: Cell) -> list[Named]:
    """Batches of few requests, those too that strain a builder whose buffers are large enough for them."""
    of_the_cell = (batches.short_steps(cell.load), cell.spec_k, cell.pattern)
    return batches.worst(*of_the_cell) + batches.splits_that_fit(*of_the_cell) + batches.within_capacity(*of_the_cell)


def _clean(auditor: Auditor, named: Named) -> Built | None:
    """The build of a batch that the builder holds: one that overruns a buffer is another case's to report."""
    built = auditor.build(named.batch)
    return built if built.metadata is not None and not built.overflows else None


def _said(deployment: vllm_api.Deployment, builder: Any, built: Built) -> dict[str, Any]:
    said = vllm_api.build(deployment, builder, built.step)
    return metadata.snapshot(metadata.fields(said, builder), said, built.need)
