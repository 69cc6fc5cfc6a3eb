"""What every backend's builder hands to its kernels, against the rows by the definition."""

from cases import batches, extents, kernel_inputs
from cases.cell import Cell


def test_kernels_are_told_the_rows_of_the_definition(cell: Cell, auditor: extents.Auditor) -> None:
    """Query tokens, keys and pages of each row, on large batches and then small ones: nothing of the large may stay.

    A batch that overruns a buffer is another case's to report.
    """
    load = batches.short_steps(cell.load)
    of_the_cell = (load, cell.spec_k, cell.chunk)
    named = batches.worst(*of_the_cell) + batches.splits_that_fit(*of_the_cell) + batches.within_capacity(*of_the_cell)
    for n in named:
        built = auditor.build(n.batch)
        if built.metadata is not None and not built.overflows:
            wrong = list(kernel_inputs.wrong(built, auditor.deployment))
            assert not wrong, f"{n.name}: {'; '.join(wrong)}; batch: {n.batch}"
