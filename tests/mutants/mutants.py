"""Small faults that the cases must notice: in vLLM's own code, in corrections of it, and in what stands for a GPU."""

from dataclasses import dataclass
from typing import Any

SPLIT = "vllm.v1.attention.backends.utils:make_local_attention_virtual_batches"
DECODES = "vllm.v1.attention.backends.utils:split_decodes_and_prefills"
WRAPPER = "vllm.model_executor.layers.attention.chunked_local_attention:create_chunked_local_attention_backend"
LAYER = "vllm.model_executor.layers.attention.chunked_local_attention:ChunkedLocalAttention.__init__"
FI = "vllm.v1.attention.backends.flashinfer:"
INIT = FI + "FlashInferMetadataBuilder.__init__"
BUILD = FI + "FlashInferMetadataBuilder.build"
TABLES = FI + "FlashInferMetadataBuilder._compute_flashinfer_kv_metadata"
FLEX = "vllm.v1.attention.backends.flex_attention:FlexAttentionMetadataBuilder."

LOADS: dict[str, dict[str, Any]] = {
    # N, T, L and page size of each; a chunk is 64 or 8192 tokens
    "one": {"max_num_seqs": 1, "max_num_batched_tokens": 36000, "max_model_len": 36000, "block_size": 16},
    "few": {"max_num_seqs": 4, "max_num_batched_tokens": 512, "max_model_len": 4096, "block_size": 32},
    "short": {"max_num_seqs": 2, "max_num_batched_tokens": 64, "max_model_len": 64, "block_size": 16},
}
SHAPE = {"num_heads": 8, "num_kv_heads": 2, "head_size": 128, "dtype": "bfloat16"}


def body(cell: str) -> dict[str, Any]:
    """A cell as the runner would send it, from `backend arch hybrid k c load` and optional axes as in `kv_dtype=fp8`.

    None need be in the matrix.
    """
    backend, arch, hybrid, k, c, load, *optional = cell.split()
    axes = {
        "vllm": "0.32.0", "backend": backend, "arch": arch, "hybrid": hybrid,
        "spec_k": int(k[1:]), "chunk": int(c[1:]), "load": load,
    }  # fmt: skip
    for axis, value in (word.split("=") for word in optional):
        axes[axis] = int(value) if value.isdigit() else value
    return {
        "id": cell, "axes": axes, "load": {"name": load, **LOADS[load], **SHAPE},
        "evidence": "cpu" if arch == "cpu" else _evidence(backend, axes.get("case", "metadata")),
    }  # fmt: skip


def _evidence(backend: str, case: str) -> str:
    return "interpreted" if (backend, case) == ("triton_attn", "forward") else "emulated"


@dataclass(frozen=True)
class Edit:
    """In the source of the function at `where` (module:path), the one place that says `old` becomes `new`."""

    where: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A fault, the cells in which it is to be noticed, and the correction of vLLM (if any) that it is a fault of."""

    name: str
    where: str
    old: str
    new: str
    cells: tuple[str, ...]
    correction: str = ""

    @property
    def edit(self) -> Edit:
        return Edit(self.where, self.old, self.new)


SEQS = "max_num_reqs = vllm_config.scheduler_config.max_num_seqs"
INDICES = "max_num_pages, dtype=torch.int32"
ENOUGH = "2 * n + max(t - 2 * n, 0) // c"
"""The most virtual batches of n requests and t tokens: two for each, and one more for each further c tokens."""

BY_ROWS = f"""n = vllm_config.scheduler_config.max_num_seqs
    t, c = self.max_num_batched_tokens, getattr(kv_cache_spec, "attention_chunk_size", None)
    max_num_reqs = {ENOUGH} if c else n"""
COPIED = "self.paged_kv_last_page_len.copy_to_gpu(num_reqs)"
PAST_THE_END = f"""{COPIED}
    last = self.paged_kv_last_page_len.np
    np.lib.stride_tricks.as_strided(last, (len(last) + 1,))[-1] = page_size"""

CORRECTIONS: dict[str, tuple[Edit, ...]] = {
    "": (),
    "sized by virtual batches": (Edit(INIT, SEQS, BY_ROWS),),
    "sized by virtual batches, short by one": (Edit(INIT, SEQS, BY_ROWS.replace(ENOUGH, f"{ENOUGH} - 1")),),
    "indices short by one": (Edit(INIT, INDICES, "max_num_pages - 1, dtype=torch.int32"),),
    "an array is written past its end": (Edit(TABLES, COPIED, PAST_THE_END),),
}
SIZED = "sized by virtual batches"

OTHERS = tuple(f"{backend} sm90 on k3 c64 few" for backend in ("flash_attn", "triton_attn"))
FLASH = ("flash_attn sm90 on k3 c64 few",)
SM80, SM80_SHORT = ("flashinfer sm80 on k1 c64 few",), ("flashinfer sm80 on k0 c64 short",)
SM90, SM100 = ("flashinfer sm90 on k1 c64 few",), ("flashinfer sm100 on k1 c64 few",)
SM90_K3 = ("flashinfer sm90 on k3 c64 few",)
FLEX_SHORT = ("flex_attention sm90 on k0 c64 short",)
LONG = ("flash_attn sm90 on k0 c8192 one",)
UNSPLIT = ("super().build(common_prefix_len, cm, fast_build)", "super().build(common_prefix_len, common_attn_metadata)")
ONLY_CHUNKED_SPEC = (
    "metadata = super().build(common_prefix_len, cm, fast_build)",
    "cm = cm if isinstance(self.kv_cache_spec, ChunkedLocalAttentionSpec) else common_attn_metadata\n"
    "            metadata = super().build(common_prefix_len, cm, fast_build)",
)

SPLITTER = (
    Mutant("a row has a key too many", SPLIT, "cu_num_blocks[-1], attn_chunk_size,",
           "cu_num_blocks[-1], attn_chunk_size + 1,", FLASH),
    Mutant("the last row of a full chunk has no keys", SPLIT, "attn_chunk_size + (seq_lens_np % -attn_chunk_size)",
           "seq_lens_np % attn_chunk_size", FLASH),
    Mutant("the last row has a key too few", SPLIT, "seqlens_k_local[cu_num_blocks - 1] = tokens_in_last_block",
           "seqlens_k_local[cu_num_blocks - 1] = tokens_in_last_block - 1", FLASH),
    Mutant("the first row starts from the end of the sequence", SPLIT, "((seq_lens_np - q_seqlens) % attn_chunk_size)",
           "(seq_lens_np % attn_chunk_size)", FLASH),
    Mutant("a partial last chunk gets no row", SPLIT, "1 + cdiv(q_seqlens - q_tokens_in_first_block, attn_chunk_size)",
           "1 + (q_seqlens - q_tokens_in_first_block) // attn_chunk_size", FLASH),
    Mutant("page columns are not clipped", SPLIT, ".clip(max=block_table.shape[1] - 1)", "", LONG),
    Mutant("page columns are clipped one too early", SPLIT, "block_table.shape[1] - 1", "block_table.shape[1] - 2",
           LONG),
    Mutant("keys start a page late", SPLIT, "k_seqstarts_absolute // block_size",
           "k_seqstarts_absolute // block_size + 1", FLASH),
    Mutant("two pages of a row are swapped", SPLIT, ".view(virtual_batches, -1)",
           ".view(virtual_batches, -1)[:, [1, 0, *range(2, pages_per_local_batch)]]", FLASH),
    Mutant("rows have another request's pages", SPLIT, "np.arange(actual_batch_size, dtype=np.int32)",
           "np.roll(np.arange(actual_batch_size, dtype=np.int32), 1)", FLASH),
    Mutant("query starts are not cumulative", SPLIT, "np.cumsum(seqlens_q_local, out=cu_seqlens_q_local[1:])",
           "cu_seqlens_q_local[1:] = seqlens_q_local", FLASH),
    Mutant("middle rows are a chunk too short of queries", SPLIT, "attn_chunk_size * (arange - 1)",
           "attn_chunk_size * arange", FLASH),
    Mutant("max_seq_len is the sequence's", SPLIT, "int(seq_lens_cpu.max())", "common_attn_metadata.max_seq_len",
           OTHERS),
    Mutant("max_query_len is the request's", SPLIT, "seqlens_q_local.max()", "common_attn_metadata.max_query_len",
           OTHERS),
    Mutant("a token is not counted", SPLIT, "num_actual_tokens=common_attn_metadata.num_actual_tokens",
           "num_actual_tokens=common_attn_metadata.num_actual_tokens - 1", OTHERS),
    Mutant("slots are in another order", SPLIT, "slot_mapping=common_attn_metadata.slot_mapping",
           "slot_mapping=common_attn_metadata.slot_mapping.flip(0)", OTHERS),
    Mutant("rows are not causal", SPLIT, "causal=True", "causal=False", OTHERS),
)  # fmt: skip

BUILDERS = (
    Mutant("flashinfer is not split without the hybrid manager", WRAPPER, *ONLY_CHUNKED_SPEC,
           ("flashinfer sm90 off k3 c64 few",)),
    Mutant("flash_attn is not split without the hybrid manager", WRAPPER, *ONLY_CHUNKED_SPEC,
           ("flash_attn sm90 off k3 c64 few",)),
    Mutant("flash_attn is not split", WRAPPER, *UNSPLIT, FLASH),
    Mutant("triton_attn is not split", WRAPPER, *UNSPLIT, ("triton_attn sm80 on k0 c64 few",)),
    Mutant("flex_attention is not split", WRAPPER, *UNSPLIT, ("flex_attention sm90 on k1 c64 few",)),
    Mutant("cpu_attn is not split", WRAPPER, *UNSPLIT, ("cpu_attn cpu off k3 c64 few",)),
    Mutant("local layers get the global layers' builder", LAYER,
           "create_chunked_local_attention_backend(\n        underlying_attn_backend, attention_chunk_size\n    )",
           "underlying_attn_backend", FLASH),
    Mutant("layers are wrapped for twice their chunk", LAYER, "underlying_attn_backend, attention_chunk_size\n",
           "underlying_attn_backend, 2 * attention_chunk_size\n", OTHERS),
    Mutant("flex offsets are sequence lengths", FLEX + "build", "common_attn_metadata.compute_num_computed_tokens()",
           "seq_lens", ("flex_attention sm90 on k1 c64 few",)),
    Mutant("flex query starts are short by one", FLEX + "__init__", "max_num_seqs + 1, dtype", "max_num_seqs, dtype",
           FLEX_SHORT),
    Mutant("flex rows of tokens are short by one", FLEX + "__init__", "max_num_batched_tokens, dtype=torch.int32",
           "max_num_batched_tokens - 1, dtype=torch.int32", FLEX_SHORT),
)  # fmt: skip

FLASHINFER = (
    Mutant("pointers are short by one", INIT, "max_num_reqs + 1, dtype", "max_num_reqs, dtype", SM80),
    Mutant("last-page lengths are short by one", INIT,
           "self.paged_kv_last_page_len = CpuGpuBuffer(\n        max_num_reqs,",
           "self.paged_kv_last_page_len = CpuGpuBuffer(\n        max_num_reqs - 1,", SM80),
    Mutant("page indices are short by one", INIT, INDICES, "max_num_pages - 1, dtype=torch.int32", SM80_SHORT),
    Mutant("a corrected size is short by one", INIT, ENOUGH, f"{ENOUGH} - 1", SM80, SIZED),
    Mutant("a corrected size is for the chunked spec only", INIT, ENOUGH,
           f"({ENOUGH}) if type(kv_cache_spec).__name__ == 'ChunkedLocalAttentionSpec' else n",
           ("flashinfer sm80 off k1 c64 few",), SIZED),
    Mutant("a corrected size counts whole chunks only", INIT, ENOUGH, "n + t // c", SM80, SIZED),
    Mutant("the last page of a full row is empty", TABLES, "page_size,\n        paged_kv_last_page_len_np",
           "0,\n        paged_kv_last_page_len_np", SM80_SHORT),
    Mutant("page indices come from the row before", TABLES, "block_table_tensor,\n        block_table_tensor.stride(0)",
           "block_table_tensor.roll(1, 0),\n        block_table_tensor.stride(0)", SM80),
    Mutant("pointers are never written", TABLES, "out=self.paged_kv_indptr.np[1 : num_reqs + 1]",
           "out=np.empty(num_reqs, np.int32)", SM80),
    Mutant("last-page lengths are stale after the first", TABLES, "paged_kv_last_page_len_np = seq_lens_np % page_size",
           "paged_kv_last_page_len_np = seq_lens_np % page_size\n"
           "    paged_kv_last_page_len_np[1:] = self.paged_kv_last_page_len.np[1:num_reqs]", SM80),
    Mutant("a prefill's queries start where the decodes' do", BUILD,
           "qo_indptr_cpu[prefill_start:] - qo_indptr_cpu[prefill_start]\n", "qo_indptr_cpu[prefill_start:]\n", SM80),
    Mutant("windows as long as a decode may be are prefills", DECODES, "is_prefill = query_lens > decode_threshold",
           "is_prefill = query_lens >= decode_threshold", SM90),
    Mutant("the first prefill row is a decode", DECODES, "num_decodes = first_prefill",
           "num_decodes = first_prefill + 1", SM90),
    Mutant("a decode's tokens count as a prefill's", DECODES, "query_start_loc[first_prefill].item()",
           "query_start_loc[first_prefill - 1].item()", SM90),
    Mutant("trtllm-gen gets windows of mixed lengths", BUILD, "require_uniform=not (", "require_uniform=bool(",
           ("flashinfer sm100 on k3 c64 few",)),
    Mutant("XQA is told the shortest window", FI + "FlashInferMetadataBuilder._compute_decode_query_lens",
           "int(nonzero.max().item())", "int(nonzero.min().item())", SM90_K3),
)  # fmt: skip

MASKS_AND_LENGTHS = (
    Mutant("a mask hides the token itself", FI + "_make_xqa_draft_block_mask", "kv_idx <= q_idx if",
           "kv_idx < q_idx if", SM90, SIZED),
    Mutant("a mask shows the whole window", BUILD, "bool(causal),", "False,", SM90, SIZED),
    Mutant("a ragged mask shows the whole window", FI + "_make_xqa_ragged_draft_block_mask", "if causal:",
           "if not causal:", SM90_K3, SIZED),
    Mutant("mask rows are short by one", FI + "FlashInferMetadataBuilder._get_decode_mask",
           ".expand(self.max_num_reqs, -1, -1)", ".expand(num_decodes - 1, -1, -1)", SM90, SIZED),
    Mutant("ragged mask rows are in another order", FI + "_make_xqa_ragged_draft_block_mask",
           "torch.repeat_interleave(request_starts, q_lens_t)",
           "torch.repeat_interleave(request_starts.flip(0), q_lens_t)", SM90_K3, SIZED),
    Mutant("mask words hold the highest bit first", FI + "_pack_draft_block_bool_mask", "1 << torch.arange(32,",
           "1 << torch.arange(31, -1, -1,", SM90, SIZED),
    Mutant("the halves of a mask word are swapped", FI + "_pack_draft_block_bool_mask",
           ".to(torch.uint32)", ".bitwise_left_shift(16).bitwise_and((1 << 32) - 1).to(torch.uint32)", SM90, SIZED),
    Mutant("a window of 32 has two mask words", FI + "_make_xqa_draft_block_mask", "(q_len + 31) // 32",
           "q_len // 32 + 1", ("flashinfer sm90 on k31 c64 few",), SIZED),
    Mutant("a partial page is not counted", BUILD, "(prefill_seq_lens + page_size - 1) // page_size",
           "prefill_seq_lens // page_size", SM100, SIZED),
    Mutant("prefill lengths are the decodes'", BUILD, "seq_lens[prefill_start:]\n", "seq_lens[:num_prefills]\n", SM100,
           SIZED),
    Mutant("the first pages before a row are stale", BUILD, "paged_kv_indptr_prefill_gpu[:1] = 0", "pass", SM100,
           SIZED),
    Mutant("prefill rows have the decodes' pages", BUILD, "prefill_block_tables = block_table_tensor[prefill_start:]\n",
           "prefill_block_tables = block_table_tensor\n", SM100, SIZED),
    Mutant("decode rows have the prefills' pages", BUILD, "block_tables=block_table_tensor[:num_decodes]",
           "block_tables=block_table_tensor[-num_decodes:]", SM100, SIZED),
)  # fmt: skip

OURS = (
    Mutant("the stand-in copies the first row for all", "attnmatrix_vllm.cache_kernels:CopyPageIndices.__getitem__",
           "block_table[row, nth]", "block_table[0, nth]", SM80),
    Mutant("the stand-in writes past the page indices", "attnmatrix_vllm.cache_kernels:CopyPageIndices.__getitem__",
           "if end > page_indices.numel():", "if False:", SM80_SHORT, "indices short by one"),
    Mutant("the storage of buffers is not watched", "cases.extents:_resized",
           "not old.moved_to(", "True or not old.moved_to(", ("flashinfer sm100 on k0 c64 one",)),
    Mutant("sm90 is presented as sm89", "attnmatrix_vllm.presented:PresentedPlatform.get_device_capability",
           "*capability_of(presented())", "8, 9", FLASH),
    Mutant("sm103 is presented as sm100", "attnmatrix_vllm:capability_of", "int(digits[:-1]), int(digits[-1])",
           "int(digits[:-1]), 0", ("flashinfer sm103 on k0 c64 few",)),
    Mutant("the platform has no hybrid manager", "attnmatrix_vllm.presented:PresentedPlatform.support_hybrid_kv_cache",
           "presented() != CPU or", "presented() == CPU and", FLASH),
)  # fmt: skip

MUTANTS = (*SPLITTER, *BUILDERS, *FLASHINFER, *MASKS_AND_LENGTHS, *OURS)
