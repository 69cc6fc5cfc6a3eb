"""Stand-ins for compiled code that cannot run without a GPU: they compute nothing, and check what they are given.

Each checks the contract that FlashInfer documents for the function it stands for and bounds-checks every write, and
raises where the real one would read or write out of range. They are installed for emulated evidence only.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any


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
    and nothing in it knows how long `page_indices` is.
    """

    def __getitem__(self, grid: tuple[int]) -> Callable[..., None]:
        (rows,) = grid

        def copy(page_indices: Any, block_table: Any, _stride: int, cu_num_blocks: Any, **_: Any) -> None:
            if cu_num_blocks.numel() < rows + 1:
                raise OutOfRange("cu_num_blocks", rows + 1, cu_num_blocks.numel())
            bounds = cu_num_blocks[: rows + 1].tolist()
            if bounds[rows] > page_indices.numel():
                raise OutOfRange("paged_kv_indices", bounds[rows], page_indices.numel())
            for row, (start, end) in enumerate(pairwise(bounds)):
                page_indices[start:end] = block_table[row, : end - start]

        return copy


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
        num_qo_heads: int, num_kv_heads: int, head_dim_qk: int, page_size: int, *,  # noqa: ARG002
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
        }


class BatchDecodeWithPagedKVCacheWrapper(_PagedWrapper):
    """Stands for FlashInfer's decode wrapper of the same name; `plan` checks its documented shapes and ranges."""

    def plan(
        self, indptr: Any, indices: Any, last_page_len: Any,
        num_qo_heads: int, num_kv_heads: int, head_dim: int, page_size: int,  # noqa: ARG002
        *_: Any, **options: Any,
    ) -> None:  # fmt: skip
        self._check_table(indptr, indices, last_page_len, page_size)
        q_len = options.get("q_len_per_req", 1)
        self.planned = {"indptr": indptr, "indices": indices, "last_page_len": last_page_len, "q_len_per_req": q_len}


def install(flashinfer_backend: Any) -> None:
    """Put the stand-ins where vLLM's FlashInfer backend looks its compiled code up: the names in its own module."""
    flashinfer_backend.BatchPrefillWithPagedKVCacheWrapper = BatchPrefillWithPagedKVCacheWrapper
    flashinfer_backend.BatchDecodeWithPagedKVCacheWrapper = BatchDecodeWithPagedKVCacheWrapper
    if hasattr(flashinfer_backend, "_copy_page_indices_kernel"):  # since 0.10.2; before, torch copies the page indices
        flashinfer_backend._copy_page_indices_kernel = CopyPageIndices()
    if hasattr(flashinfer_backend, "_get_multi_ctas_kv_counter_buffer"):  # since 0.33: a layer's scratch on the device
        flashinfer_backend.get_device_sm_count = lambda _device: 1
        flashinfer_backend._get_multi_ctas_kv_counter_buffer = lambda *_: None
