"""Faults in what a backend's forward does itself, of which no metadata tells: only cells that compute notice them."""

from tests.mutants.mutants import FI, LAYER, Mutant

FORWARD = FI + "FlashInferImpl.forward"
UPDATE = FI + "FlashInferImpl.do_kv_cache_update"
TRITON = "vllm.v1.attention.backends.triton_attn:TritonAttentionImpl.forward"
FLASH = "vllm.v1.attention.backends.flash_attn:FlashAttentionImpl.forward"
FLEX = "vllm.v1.attention.backends.flex_attention:FlexAttentionImpl.forward"

SM80, SM100 = ("flashinfer sm80 on k0 c64 few case=forward",), ("flashinfer sm100 on k3 c64 few case=forward",)
SM90, SM120 = ("flashinfer sm90 on k3 c64 few case=forward",), ("flashinfer sm120 on k3 c64 few case=forward",)
SM90_FP8 = ("flashinfer sm90 on k3 c64 few kv_dtype=fp8 case=forward",)
SM100_FP8 = ("flashinfer sm100 on k3 c64 few kv_dtype=fp8 case=forward",)
INTERPRETED = ("triton_attn sm90 on k3 c64 one case=forward",)
FA3, FLEX_K1 = ("flash_attn sm90 on k3 c64 few case=forward",), ("flex_attention sm90 on k1 c64 few case=forward",)
LONG = ("flash_attn sm90 on k0 c8192 one case=forward",)

COMPUTED = (
    Mutant("prefills take the queries of decodes", FORWARD, "prefill_query = query[num_decode_tokens:]",
           "prefill_query = query[:num_prefill_tokens]", SM80),
    Mutant("decodes take the last queries", FORWARD, "query_padded[:decode_query_tokens]",
           "query_padded[-decode_query_tokens:]", SM90),
    Mutant("native prefills write over decodes", FORWARD, "out_prefill = output[num_decode_tokens:]",
           "out_prefill = output[:num_prefill_tokens]", SM80),
    Mutant("XQA writes to the last rows", FORWARD, "out=output_padded[:decode_query_tokens],",
           "out=output_padded[-decode_query_tokens:],", SM120),
    Mutant("the draft mask is not handed over", FORWARD, "mask=attn_metadata.decode.mask,", "mask=None,", SM90),
    Mutant("ragged windows are handed over as even ones", FORWARD, "q_cu_seq_lens=attn_metadata.decode.q_cu_seq_lens,",
           "q_cu_seq_lens=None,", SM90),
    Mutant("keys and values of the cache are swapped when read", FORWARD, "kv_cache_permute.split(hs, dim=-1)",
           "kv_cache_permute.split(hs, dim=-1)[::-1]", SM120),
    Mutant("keys are written where values are", UPDATE, "k_cache,\n            v_cache,\n            slot_mapping,",
           "v_cache,\n            k_cache,\n            slot_mapping,", SM80),
    Mutant("trtllm-gen is told the scale of values for scores", FORWARD,
           "bmm2_scale=self.bmm2_scale,\n                batch_size",
           "bmm2_scale=self.bmm1_scale,\n                batch_size", SM100),
    Mutant("trtllm-gen prefills with the pages of the row before", FORWARD, "block_tables=mock_block_table,",
           "block_tables=mock_block_table.roll(1, 0),", SM100),
    Mutant("XQA ignores the scale of keys", FI + "FlashInferImpl.get_xqa_bmm1_scale",
           "bmm1_scale *= layer._k_scale_float", "pass", SM90_FP8),
    Mutant("trtllm-gen ignores the scale of values", FORWARD, "self.bmm2_scale *= layer._v_scale_float", "pass",
           SM100_FP8),
    Mutant("the kernel's rows have the chunk before", TRITON, "block_table = attn_metadata.block_table",
           "block_table = attn_metadata.block_table.roll(1, 0)", INTERPRETED),
    Mutant("the kernel's pages are shifted by one", TRITON, "block_table = attn_metadata.block_table",
           "block_table = attn_metadata.block_table.roll(1, 1)", INTERPRETED),
    Mutant("the kernel is not told of the last row", TRITON, "cu_seqlens_q = attn_metadata.query_start_loc",
           "cu_seqlens_q = attn_metadata.query_start_loc.clamp(max=int(attn_metadata.query_start_loc[-2]))",
           INTERPRETED),
    Mutant("the kernel's layer is wrapped for twice its chunk", LAYER,
           "underlying_attn_backend, attention_chunk_size\n", "underlying_attn_backend, 2 * attention_chunk_size\n",
           INTERPRETED),
    Mutant("flash_attn's rows have a key too few", FLASH, "seqused_k = attn_metadata.seq_lens",
           "seqused_k = (attn_metadata.seq_lens - 1).clamp(min=1)", FA3),
    Mutant("flash_attn is told of half the scale", FLASH, "softmax_scale=self.scale,", "softmax_scale=self.scale / 2,",
           FA3),
    Mutant("flex drops the block list", FLEX, "attn_metadata.block_mask,\n        self.scale",
           "None,\n        self.scale", FLEX_K1),
    Mutant("the definition leaves a key of the largest chunk out", "cases.reference:attention",
           "key < first + count", "key + 1 < first + count", LONG),
    Mutant("the model aligns causality to the start", "attnmatrix_vllm.paged_attention:causal",
           "(keys - queries + torch.arange(queries))", "torch.arange(queries)", FA3),
    Mutant("the model reads the draft mask from the highest bit", "attnmatrix_vllm.flashinfer_xqa:_windows",
           'bitorder="little"', 'bitorder="big"', SM90),
)  # fmt: skip
