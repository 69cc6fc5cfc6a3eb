"""Stand-ins for compiled code that cannot run without a GPU: they compute nothing, and check what they are given.

Each checks the contract that FlashInfer documents for the function it stands for and bounds-checks every write, and
raises where the real one would read or write out of range. They are installed for emulated evidence only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask

from cases.real_kernel import interpreted


class ContractBroken(AssertionError):
    """A caller gave a kernel something its documentation does not allow."""


class OutOfRange(Exception):
    """A kernel would write `required` entries into a buffer that has `allocated`: silent on a GPU."""

    def __init__(self, buffer: str, required: int, allocated: int) -> None:
        self.buffer, self.required, self.allocated = buffer, required, allocated
        super().__init__(f"{buffer}: a kernel would write {required} entries into {allocated}")


class CopyPageIndices:
    """Stands for vLLM's Triton kernel that gathers block-table rows into one list of page indices.

    Contract (its source): program r copies block_table[r, 0 : cu[r + 1] - cu[r]] to page_indices[cu[r] : cu[r + 1]],
    and nothing in it knows how long `page_indices` is. In a block `with copy.by_the_real_kernel():` the kernel itself
    does it, in Triton's interpreter, for as many rows as that is quick for.
    """

    ROWS = 4
    """The interpreter takes about a millisecond for a row."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._interpret = False

    def warm(self) -> None:
        """Let the interpreter read the kernel's source: once per process, a tenth of a second."""
        if self.kernel is not None and self.interprets(1):
            page = torch.zeros((1, 1), dtype=torch.int32)
            interpreted(self.kernel)[(1,)](page[0], page, 1, torch.arange(2, dtype=torch.int32), BLOCK_SIZE=1)

    def interprets(self, rows: int) -> bool:
        """Whether the real kernel is run for that many rows when it is asked for."""
        return rows <= self.ROWS and interpreted(self.kernel) is not None

    @contextmanager
    def by_the_real_kernel(self) -> Iterator[None]:
        """Let the real kernel write until the block ends, beyond the page indices too: behind them are guard words."""
        self._interpret = True
        try:
            yield
        finally:
            self._interpret = False

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        (rows,) = grid

        def copy(page_indices: Any, block_table: Any, stride: int, cu_num_blocks: Any, **options: Any) -> None:
            if cu_num_blocks.numel() < rows + 1:
                raise OutOfRange("cu_num_blocks", rows + 1, cu_num_blocks.numel())
            starts, ends = cu_num_blocks[:rows].long(), cu_num_blocks[1 : rows + 1].long()
            counts, end = (ends - starts).clamp(min=0), int(ends.max()) if rows else 0
            if rows and int(counts.max()) > block_table.shape[1]:
                raise ContractBroken(f"{int(counts.max())} pages are copied of a row of {block_table.shape[1]}")
            if self._interpret and self.interprets(rows):
                behind = page_indices.untyped_storage().nbytes() // page_indices.element_size()
                if page_indices.storage_offset() + end > behind:
                    raise OutOfRange("paged_kv_indices", end, page_indices.numel())
                interpreted(self.kernel)[grid](page_indices, block_table, stride, cu_num_blocks, **options)
                return
            if end > page_indices.numel():
                raise OutOfRange("paged_kv_indices", end, page_indices.numel())
            row = torch.repeat_interleave(counts)
            nth = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row]
            page_indices[starts[row] + nth] = block_table[row, nth]

        return copy


COPY = CopyPageIndices(None)
"""The one that is installed."""


class _PagedWrapper:
    """What the paged wrappers share: a workspace, a layout, and the checks on a paged KV table."""

    def __init__(self, _workspace: Any, kv_layout: str = "NHD", **options: Any) -> None:
        if kv_layout not in ("NHD", "HND"):
            raise ContractBroken(f"kv_layout is {kv_layout!r}, documented are NHD and HND")
        self.is_cuda_graph_enabled = bool(options.get("use_cuda_graph"))
        self.planned: dict[str, Any] = {}

    def _check_table(self, indptr: Any, indices: Any, last_page_len: Any, page_size: int) -> int:
        """indptr is [rows + 1] and never falls; indices is as long as its end; last pages hold 1..page_size tokens."""
        rows = last_page_len.shape[0]
        if indptr.shape[0] != rows + 1:
            raise ContractBroken(f"paged_kv_indptr has {indptr.shape[0]} entries for {rows} rows")
        if bool((indptr[1:] < indptr[:-1]).any()):
            raise ContractBroken("paged_kv_indptr falls")
        if int(indptr[-1]) > indices.shape[0]:
            raise ContractBroken(f"paged_kv_indptr ends at {int(indptr[-1])}, paged_kv_indices has {indices.shape[0]}")
        occupied = indptr[1:] > indptr[:-1]
        wrong = occupied & ((last_page_len < 1) | (last_page_len > page_size))
        if bool(wrong.any()):
            raise ContractBroken(
                f"paged_kv_last_page_len leaves 1..{page_size} in rows {wrong.nonzero().flatten().tolist()}"
            )
        return int(rows)


class BatchPrefillWithPagedKVCacheWrapper(_PagedWrapper):
    """Stands for FlashInfer's prefill wrapper of the same name; `plan` checks its documented shapes and ranges."""

    def plan(  # FlashInfer's order of arguments: until 0.16 vLLM gives the first eight without their names
        self, qo_indptr: Any, paged_kv_indptr: Any, paged_kv_indices: Any, paged_kv_last_page_len: Any,
        num_qo_heads: int, num_kv_heads: int, head_dim_qk: int, page_size: int, *,
        seq_lens: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        rows = self._check_table(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size)
        if qo_indptr.shape[0] != rows + 1:
            raise ContractBroken(f"qo_indptr has {qo_indptr.shape[0]} entries for {rows} rows")
        query_lens = qo_indptr[1:] - qo_indptr[:-1]
        if bool((query_lens < 0).any()) or int(qo_indptr[0]) != 0:
            raise ContractBroken("qo_indptr does not start at 0 or falls")
        keys = (paged_kv_indptr[1:] - paged_kv_indptr[:-1] - 1) * page_size + paged_kv_last_page_len
        if options.get("causal") and bool((query_lens > (keys if seq_lens is None else seq_lens)).any()):
            raise ContractBroken("a row has more query tokens than keys")
        self.planned = {
            "qo_indptr": qo_indptr,
            "indptr": paged_kv_indptr,
            "indices": paged_kv_indices,
            "last_page_len": paged_kv_last_page_len,
            "page_size": page_size,
            "num_qo_heads": num_qo_heads,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim_qk,
            **options,
        }


class BatchDecodeWithPagedKVCacheWrapper(_PagedWrapper):
    """Stands for FlashInfer's decode wrapper of the same name; `plan` checks its documented shapes and ranges."""

    def plan(
        self, indptr: Any, indices: Any, last_page_len: Any,
        num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int,
        *_: Any, **options: Any,
    ) -> None:  # fmt: skip
        self._check_table(indptr, indices, last_page_len, page_size)
        tables = {"indptr": indptr, "indices": indices, "last_page_len": last_page_len, "page_size": page_size}
        shape = {"num_qo_heads": num_qo_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim}
        self.planned = {**tables, **shape, **options}


class BlockMask:
    """Stands for the compiled `create_block_mask` of FlexAttention: the same mask by the plain one, when it is read.

    Until 0.10 vLLM has one compiled for each step; plain, it takes the memory of all query tokens by all slots.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._made_of = args, options

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        args, options = self._made_of
        self.__dict__.update(vars(create_block_mask(*args, **options)))
        return self.__dict__[name]


def install(flashinfer_backend: Any, flex_backend: Any, *, torch_2_8: bool) -> None:
    """Put the stand-ins where vLLM's backends look their compiled code up: the names in their own modules.

    `torch_2_8`: the release came with a torch no newer than that, by which FlexAttention chooses how to make its masks.
    """
    if torch_2_8:
        flex_backend.create_block_mask_compiled = BlockMask
        flex_backend.is_torch_equal_or_newer = lambda version: version == "2.8.0"
    flashinfer_backend.BatchPrefillWithPagedKVCacheWrapper = BatchPrefillWithPagedKVCacheWrapper
    flashinfer_backend.BatchDecodeWithPagedKVCacheWrapper = BatchDecodeWithPagedKVCacheWrapper
    kernel = getattr(flashinfer_backend, "_copy_page_indices_kernel", COPY)  # since 0.10.2; before, torch copies
    if kernel is not COPY:
        COPY.kernel = kernel
        flashinfer_backend._copy_page_indices_kernel = COPY
    if hasattr(flashinfer_backend, "_get_multi_ctas_kv_counter_buffer"):  # since 0.33: a layer's scratch on the device
        flashinfer_backend.get_device_sm_count = lambda _device: 1
        flashinfer_backend._get_multi_ctas_kv_counter_buffer = lambda *_: None
