"""Faults that only some batches show: near the longest sequence, far from both ends, on a first token, with padding."""

from tests.mutants.mutants import FLASH, SPLIT, WRAPPER, Mutant

TRITON = ("triton_attn sm90 on k3 c64 few",)

BATCHES = (
    Mutant("the last column of the block table is lost", SPLIT, "block_table.shape[1] - 1", "block_table.shape[1] - 2",
           FLASH),
    Mutant("chunks amid a long sequence start a page late", SPLIT, "k_seqstarts_absolute // block_size",
           "k_seqstarts_absolute // block_size + (abs(k_seqstarts_absolute // attn_chunk_size - 30) < 20)", FLASH),
    # What https://github.com/vllm-project/vllm/issues/21694 asked for: the last c keys, whichever chunk they are in.
    Mutant("a request of one row sees the last chunk's worth of keys", SPLIT,
           "seqlens_k_local[cu_num_blocks - 1] = tokens_in_last_block",
           "seqlens_k_local[cu_num_blocks - 1] = np.where(local_blocks > 1, tokens_in_last_block,"
           " np.minimum(seq_lens_np, attn_chunk_size))", FLASH),
    # https://github.com/vllm-project/vllm/pull/28739: a wrapper that inherits the getter captures graphs of one split.
    Mutant("chunked layers have their backend's graphs", WRAPPER, "return AttentionCGSupport.NEVER",
           "return underlying_builder.get_cudagraph_support(vllm_config, kv_cache_spec)", TRITON),
)  # fmt: skip
