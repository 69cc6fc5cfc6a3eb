"""FlexAttention: the blocks that a BlockMask lists, and its mask_mod inside them.

Contract (PyTorch, `torch.nn.attention.flex_attention.BlockMask`): query block i visits the first kv_num_blocks[i]
entries of kv_indices[i], and the kernel evaluates mask_mod(b, h, q, kv) for each pair inside; the blocks of
full_kv_indices are visited without it. A pair outside the visited blocks is never computed, whatever mask_mod would
say. Keys are the slots of the whole cache, flattened.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cases.interpreter.rows import Bools, Ints, Row, numbers


def by_block_mask(block_mask: Any, tokens: int) -> Iterator[Row]:
    """A row for each query block of the mask: its tokens and every slot that it visits."""
    queries, size = block_mask.BLOCK_SIZE
    for block, first in enumerate(range(0, tokens, queries)):
        row = np.arange(first, min(first + queries, tokens))
        partial = _visited(block_mask.kv_num_blocks, block_mask.kv_indices, block, size)
        full = _visited(block_mask.full_kv_num_blocks, block_mask.full_kv_indices, block, size)
        visible = np.concatenate(
            [_evaluated(block_mask, row, partial), np.ones((len(row), len(full)), dtype=bool)], axis=1
        )
        yield Row(row, np.concatenate([partial, full]), visible)


def _visited(counts: Any, indices: Any, block: int, size: int) -> Ints:
    if counts is None:
        return np.empty(0, dtype=np.int64)
    listed = numbers(indices[0, 0, block, : int(counts[0, 0, block])]).astype(np.int64)
    return (listed[:, None] * size + np.arange(size)).reshape(-1)


def _evaluated(block_mask: Any, queries: Ints, slots: Ints) -> Bools:
    """mask_mod of each pair; batch and head are 0, as there is one of each."""
    tensor = block_mask.kv_indices.new_tensor
    answer = block_mask.mask_mod(tensor(0), tensor(0), tensor(queries[:, None]), tensor(slots[None, :]))
    return np.broadcast_to(numbers(answer), (len(queries), len(slots)))
