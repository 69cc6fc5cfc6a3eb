"""What a batch asks of the buffers, by the definition."""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cases import bounds, reference
from cases.cell import Cell
from cases.patterns import Full, Pattern
from cases.verdicts import Batch


@dataclass(frozen=True)
class Counts:
    """Virtual batches, query tokens, and pages over all rows: of one batch, or the most of any."""

    rows: int
    tokens: int
    pages: int


@dataclass(frozen=True)
class Need:
    """One batch by the definition: its rows, and the KV-cache pages of each."""

    rows: reference.Rows
    pages: reference.Ints

    @classmethod
    @functools.lru_cache(maxsize=256)  # the cases of a cell ask about the same batches
    def of(cls, batch: Batch, pattern: Pattern, block_size: int) -> "Need":
        rows = reference.rows(np.array(batch.query_lens), np.array(batch.seq_lens), pattern)
        return cls(rows, reference.pages(rows.key_lens, block_size))

    @property
    def count(self) -> int:
        return len(self.rows.query_lens)

    @property
    def counts(self) -> Counts:
        return Counts(self.count, int(self.rows.query_lens.sum()), int(self.pages.sum()))


REQUIRED: dict[str, Callable[[Counts], int]] = {
    # FlashInfer: a pointer per row and the end, a last-page length per row, an index per page
    "paged_kv_indptr": lambda need: need.rows + 1,
    "paged_kv_last_page_len": lambda need: need.rows,
    "paged_kv_indices": lambda need: need.pages,
    # FlexAttention: one map row, length and offset per row, a start per row and the end
    "persistent_physical_to_logical": lambda need: need.rows,
    "persistent_seq_lens": lambda need: need.rows,
    "persistent_offset_tensor": lambda need: need.rows,
    "persistent_query_start_loc": lambda need: need.rows + 1,
    "persistent_doc_ids": lambda need: need.tokens,
}
"""Entries along the first dimension that a builder's buffer must have for a batch.

Not how buffers are found, only what those known must hold: one that is written outside or moved, and is not here, is
told by its name.
"""


def bounds_of(cell: Cell) -> dict[str, tuple[int, int]]:
    """For each buffer that counts rows: the most entries that any batch of the cell's load needs, and the most without
    chunks, where each request is one row. Where both are the same, what is sized by requests cannot overflow."""
    limits = bounds.Limits.of(cell.load)
    worst, without = (
        Counts(rows=bounds.virtual_batches(limits, seen), tokens=0, pages=0) for seen in (cell.pattern, Full())
    )
    found = {name: (REQUIRED[name](worst), REQUIRED[name](without)) for name in BY_ROWS.get(cell.backend, ())}
    if cell.backend == "flashinfer":
        found["cum_seq_lens_kv"] = worst.rows + 1, without.rows + 1
        if cell.spec_k:
            found["xqa_draft_mask"] = (
                bounds.mask_rows(limits, cell.spec_k, cell.pattern),
                bounds.mask_rows(limits, cell.spec_k, Full()),
            )
    return found


BY_ROWS = {
    "flashinfer": ("paged_kv_indptr", "paged_kv_last_page_len"),
    "flex_attention": (
        "persistent_physical_to_logical",
        "persistent_seq_lens",
        "persistent_offset_tensor",
        "persistent_query_start_loc",
    ),
}
"""By backend, the buffers of its builder that have an entry for each row."""
