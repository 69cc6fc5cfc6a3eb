"""Faults that show in what attention computes: in vLLM's masks and tables, in our interpreter, in the definition."""

from tests.mutants.mutants import BUILD, FI, INIT, SIZED, SM80, SM90_K3, SM100, TABLES, Mutant

FLEX = "vllm.v1.attention.backends.flex_attention:"
MASK = FLEX + "FlexAttentionMetadata._build_block_mask_direct"
READ = "cases.interpreter"

FLEX_K1, SM90_K5 = ("flex_attention sm90 on k1 c64 few",), ("flashinfer sm90 on k5 c64 few",)
TRITON = ("triton_attn sm90 on k3 c64 few",)

ATTENTION = (
    Mutant("a bit of the draft mask is lost", FI + "_pack_draft_block_bool_mask", "num_rows = bool_mask.shape[0]",
           "num_rows = bool_mask.shape[0]\n    bool_mask = bool_mask.clone()\n    bool_mask[-1, 0] = False", SM90_K3),
    Mutant("XQA is told that ragged windows are uniform", FI + "FlashInferMetadataBuilder._compute_decode_query_lens",
           "if uniform and num_decode_tokens == num_decodes * q_len_per_req:",
           "if uniform or num_decode_tokens >= num_decodes:", SM90_K5),
    Mutant("native prefill is not causal", BUILD, "causal=attn_metadata.causal,", "causal=False,", SM80),
    Mutant("the softmax scale is squared", INIT, "self.sm_scale = self.global_hyperparameters.sm_scale",
           "self.sm_scale = self.global_hyperparameters.sm_scale ** 2", SM80),
    Mutant("heads are planned in other groups", INIT, "self.num_kv_heads = self.kv_cache_spec.num_kv_heads",
           "self.num_kv_heads = 2 * self.kv_cache_spec.num_kv_heads", SM80),
    Mutant("a last page holds a token too few", TABLES, "page_size,\n        paged_kv_last_page_len_np,\n",
           "page_size,\n        np.maximum(paged_kv_last_page_len_np - 1, 1),\n", SM80),
    Mutant("trtllm-gen prefills start where the step does", BUILD,
           "qo_indptr[prefill_start:] - qo_indptr[prefill_start]\n", "qo_indptr[prefill_start:]\n", SM100),
    Mutant("the longest prefill is the shortest", BUILD, "int(query_lens_prefill_cpu.max().item())",
           "int(query_lens_prefill_cpu.min().item())", SM100, SIZED),
    Mutant("a block list is one block short", MASK, "(kv_indices >= 0).sum(dim=-1)",
           "((kv_indices >= 0).sum(dim=-1) - 1)", FLEX_K1),
    Mutant("the block of the query itself is pruned", MASK, "block_starts[None, :] > logical_q_idx",
           "block_ends[None, :] > logical_q_idx", FLEX_K1),
    Mutant("all query blocks visit the first one's blocks", MASK,
           "copy_to_persistent(self.persistent_kv_indices, kv_indices)",
           "copy_to_persistent(self.persistent_kv_indices, kv_indices[:1].expand_as(kv_indices))", FLEX_K1),
    Mutant("a block is listed twice", FLEX + "unique_static_unsorted", " & (idx == first_idx.gather(1, x_flat))", "",
           FLEX_K1),
    Mutant("flex is not causal", FLEX + "FlexAttentionMetadata.get_paged_mask_mod",
           "is_valid & self.logical_mask_mod(b, h, logical_q_idx, logical_kv_idx)", "is_valid", FLEX_K1),
    Mutant("flex queries count from the start of the step", FLEX + "FlexAttentionMetadata._convert_physical_to_logical",
           "q_idx - self.query_start_loc[q_req]", "q_idx", FLEX_K1),
    Mutant("the last page of a row is not mapped", FLEX + "physical_to_logical_mapping",
           "num_blocks_per_seq[:, None]\n", "num_blocks_per_seq[:, None] - 1\n", FLEX_K1),
    Mutant("the interpreter deals heads out in turn", READ + ":attention",
           "-1, group, queries.shape[2]).transpose(1, 2, 0, 3)", "group, -1, queries.shape[2]).transpose(2, 1, 0, 3)",
           TRITON),
    Mutant("the interpreter aligns causality to the start", READ + ".rows:causal",
           "(keys - queries + np.arange(queries))", "np.arange(queries)", TRITON),
    Mutant("the interpreter reads whole last pages", READ + ".paged:by_pointers",
           "(len(pages) - 1) * size + int(last[row])", "len(pages) * size", SM80),
    Mutant("the interpreter reads pages backwards", READ + ".rows:slots_of", "np.arange(size)",
           "np.arange(size)[::-1]", TRITON),
    Mutant("the interpreter starts prefills at the first token", READ + ".paged:by_pointers",
           "tokens_of(first, starts)", "tokens_of(0, starts)", SM80),
    Mutant("the interpreter reads mask bits from the highest", READ + ".draft_mask:unpack", '"little"', '"big"',
           SM90_K3),
    Mutant("the definition leaves a key out", "cases.reference:attention", "key < first + count",
           "key + 1 < first + count", TRITON),
)  # fmt: skip
