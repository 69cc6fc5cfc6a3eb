"""What stands for vLLM's page-index kernel, against the kernel itself in Triton's interpreter."""

import numpy as np
import pytest
import torch
from vllm.v1.attention.backends import flashinfer

from cases import stand_ins
from cases.real_kernel import interpreted

kernel = flashinfer._copy_page_indices_kernel
kernel = kernel.kernel if isinstance(kernel, stand_ins.CopyPageIndices) else kernel
POISON = -7


def tables(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A block table and pointers, for rows of no page, of one, of all, and of more than the kernel takes in a step."""
    random = np.random.default_rng(seed)
    rows, columns = int(random.integers(1, 7)), int(random.choice([3, 40, 1025, 2050]))
    table = torch.from_numpy(random.integers(1, 1 << 30, (rows, columns + 2), np.int32))[:, :columns]
    counts = random.choice([0, 1, columns, int(random.integers(0, columns + 1))], rows)
    return table, torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


@pytest.mark.parametrize("seed", range(12))
def test_the_stand_in_copies_what_the_kernel_copies(seed):
    table, pointers = tables(seed)
    end = int(pointers[-1])
    copied = []
    for copy in (interpreted(kernel), stand_ins.CopyPageIndices(kernel)):
        memory = torch.full((end + 64,), POISON, dtype=torch.int32)
        copy[(len(table),)](memory[:end], table, table.stride(0), pointers, BLOCK_SIZE=1024)
        copied.append(memory.tolist())
    assert copied[0] == copied[1]
    assert copied[0][end:] == [POISON] * 64


def test_the_kernel_writes_past_a_slice_where_the_stand_in_says_so():
    """Rows of 12 and 8 pages into a slice of 6 entries: the other 14 land in what is behind."""
    table = torch.arange(1, 25, dtype=torch.int32).view(2, 12)
    pointers = torch.tensor([0, 12, 20], dtype=torch.int32)
    memory = torch.full((32,), POISON, dtype=torch.int32)
    copy = stand_ins.CopyPageIndices(kernel)
    with pytest.raises(stand_ins.OutOfRange) as said:
        copy[(2,)](memory[:6], table, table.stride(0), pointers, BLOCK_SIZE=1024)
    assert (said.value.required, said.value.allocated) == (20, 6)
    assert memory.tolist() == [POISON] * 32
    with copy.by_the_real_kernel():
        copy[(2,)](memory[:6], table, table.stride(0), pointers, BLOCK_SIZE=1024)
    assert memory.tolist() == [*range(1, 13), *range(13, 21), *[POISON] * 12]


def test_the_kernel_is_not_let_write_past_the_memory_itself():
    table, memory = torch.zeros((1, 40), dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    copy = stand_ins.CopyPageIndices(kernel)
    with copy.by_the_real_kernel(), pytest.raises(stand_ins.OutOfRange):
        copy[(1,)](memory[:6], table, 40, torch.tensor([0, 40], dtype=torch.int32), BLOCK_SIZE=1024)


def test_more_pages_than_a_row_has_are_no_valid_copy():
    table, memory = torch.zeros((2, 3), dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    with pytest.raises(stand_ins.ContractBroken, match="4 pages are copied of a row of 3"):
        stand_ins.CopyPageIndices(kernel)[(1,)](memory, table, 3, torch.tensor([0, 4], dtype=torch.int32))
