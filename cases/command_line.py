"""What a user gives `vllm serve` for a cell: its command line, and the model folder's config.json."""

from typing import Any

from cases.cell import Cell

LOCAL_LAYERS, GLOBAL_LAYERS = 1, 1
"""Layers with chunked local attention, and layers that see the whole sequence, in the tiny model."""


def engine_args(cell: Cell) -> dict[str, Any]:
    """The command line of `vllm serve`, as keyword arguments. Drafts come from the prompt: ngram needs no weights."""
    args: dict[str, Any] = {
        "skip_tokenizer_init": True,
        "dtype": cell.load.dtype,
        "max_num_seqs": cell.load.max_num_seqs,
        "max_num_batched_tokens": cell.load.max_num_batched_tokens,
        "max_model_len": cell.load.max_model_len,
        "block_size": cell.load.block_size,
        "attention_backend": cell.backend.upper(),
        "disable_hybrid_kv_cache_manager": not cell.hybrid,
    }
    if cell.spec_k:
        args["speculative_config"] = {
            "method": "ngram",
            "num_speculative_tokens": cell.spec_k,
            "prompt_lookup_max": 3,
            "prompt_lookup_min": 1,
        }
    return args


def tiny_llama4(cell: Cell) -> dict[str, Any]:
    """The config.json of a tiny Llama 4: the smallest thing EngineArgs takes for a model."""
    return {
        "architectures": ["Llama4ForCausalLM"],
        "model_type": "llama4_text",
        "dtype": cell.load.dtype,
        "attention_chunk_size": cell.chunk,
        "no_rope_layers": [1] * LOCAL_LAYERS + [0] * GLOBAL_LAYERS,
        "num_hidden_layers": LOCAL_LAYERS + GLOBAL_LAYERS,
        "num_attention_heads": cell.load.num_heads,
        "num_key_value_heads": cell.load.num_kv_heads,
        "head_dim": cell.load.head_size,
        "hidden_size": cell.load.num_heads * cell.load.head_size,
        "intermediate_size": 64,
        "intermediate_size_mlp": 64,
        "interleave_moe_layer_step": 1,
        "num_local_experts": 1,
        "num_experts_per_tok": 1,
        "max_position_embeddings": 1 << 20,
        "vocab_size": 256,
    }
