"""Faults in what serves a cell: another kernel, dtype, page or CUDA graph than asked for, another layer's builder."""

from tests.mutants.mutants import FI, INIT, WRAPPER, Mutant

GROUPING = "vllm.v1.worker.gpu.attn_utils:init_attn_backend"
BACKEND = FI + "FlashInferBackend."
CHUNKED_SPEC = "vllm.model_executor.layers.attention.chunked_local_attention:ChunkedLocalAttention.get_kv_cache_spec"

OFF = ("flash_attn sm90 off k0 c64 few",)
SM90_K0 = ("flashinfer sm90 on k0 c64 few",)

ROUTES = (
    Mutant("layers that share a group share a builder", GROUPING,
           "key = (attn_backend.full_cls_name(), layer_kv_cache_spec, num_heads_q)", "key = num_heads_q", OFF),
    Mutant("layers have the backend of their group's first", GROUPING,
           "attn_layers[layer_name].get_attn_backend()", "attn_layers[layer_names[0]].get_attn_backend()", OFF),
    Mutant("the wrapper takes the graphs of what it wraps", WRAPPER, "return AttentionCGSupport.NEVER",
           "return underlying_builder.get_cudagraph_support(vllm_config, kv_cache_spec)", OFF),
    Mutant("sm90 decodes without XQA", INIT, "can_use_xqa_or_trtllm_gen_decode = can_use_trtllm_attention(",
           "can_use_xqa_or_trtllm_gen_decode = False and can_use_trtllm_attention(", SM90_K0),
    Mutant("sm90 reads an NVFP4 cache with XQA", INIT,
           "and (not self.nvfp4_fa2 or current_platform.is_device_capability_family(120))", "",
           ("flashinfer sm90 on k0 c64 few kv_dtype=nvfp4",)),
    Mutant("an FP8 cache does not say so", CHUNKED_SPEC, "get_kv_quant_mode(self.kv_cache_dtype)",
           'get_kv_quant_mode("auto")', ("triton_attn sm90 on k0 c64 few kv_dtype=fp8",)),
    Mutant("sm100 has pages with tokens outermost", BACKEND + "supported_kv_cache_layouts", "capability.major == 10",
           "capability.major == 11", ("flashinfer sm100 on k0 c64 few",)),
    Mutant("the KV dtype asked for is not passed on", "cases.command_line:engine_args",
           'if cell.kv_dtype != "auto":', "if False:", ("triton_attn sm90 on k0 c64 few kv_dtype=fp8",)),
)  # fmt: skip
