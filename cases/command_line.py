"""What a user gives `vllm serve` for a cell: its command line, and the model folder's config.json."""

import json
from pathlib import Path
from typing import Any

from cases.cell import Cell
from cases.patterns import Full, Pattern

LOCAL_LAYERS, GLOBAL_LAYERS = 1, 1
"""Layers with chunked local attention, and layers that see the whole sequence, in the tiny model."""

DRAFT_LAYERS = {"ngram": 0, "eagle": 1}
"""Layers that a draft model adds to the model's own; they see the whole sequence."""


def patterns(cell: Cell) -> list[Pattern]:
    """What a token sees in each layer of the model, in their order, and then in those of its draft model."""
    return [cell.pattern] * LOCAL_LAYERS + [Full()] * (GLOBAL_LAYERS + DRAFT_LAYERS[cell.draft])


def write_models(cell: Cell, folder: Path) -> None:
    """The model folder, and in it that of the draft model: a config.json each, and no weights."""
    (folder / "config.json").write_text(json.dumps(tiny_llama4(cell)))
    if cell.draft == "eagle":
        (folder / "draft").mkdir()
        (folder / "draft" / "config.json").write_text(json.dumps(tiny_draft(cell)))


def engine_args(cell: Cell, folder: Path) -> dict[str, Any]:
    """The command line of `vllm serve`, as keyword arguments; `folder` has what `write_models` wrote.

    What a cell leaves to vLLM is not on it. With EAGLE drafts no one can ask for the hybrid manager in so many words
    (vLLM refuses the combination): on means not to turn it off.
    """
    args: dict[str, Any] = {
        "model": str(folder),
        "skip_tokenizer_init": True,
        "dtype": cell.load.dtype,
        "max_num_seqs": cell.load.max_num_seqs,
        "max_num_batched_tokens": cell.load.max_num_batched_tokens,
        "max_model_len": cell.load.max_model_len,
        "block_size": cell.load.block_size,
        "attention_backend": cell.backend.upper(),
        "disable_hybrid_kv_cache_manager": not cell.hybrid,
    }
    if cell.kv_dtype != "auto":
        args["kv_cache_dtype"] = cell.kv_dtype
    if cell.cudagraph != "auto":
        args["compilation_config"] = {"cudagraph_mode": cell.cudagraph.upper()}
    if cell.spec_k:
        args["speculative_config"] = {"method": cell.draft, "num_speculative_tokens": cell.spec_k}
    if cell.spec_k and cell.draft == "ngram":  # drafts come from the prompt: it needs no weights
        args["speculative_config"] |= {"prompt_lookup_max": 3, "prompt_lookup_min": 1}
    if cell.spec_k and cell.draft == "eagle":
        args["speculative_config"]["model"] = str(folder / "draft")
        if cell.hybrid:
            del args["disable_hybrid_kv_cache_manager"]
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
        "max_position_embeddings": max(1 << 20, cell.load.max_model_len),  # a limit of the load's, never of ours
        "vocab_size": 256,
    }


def tiny_draft(cell: Cell) -> dict[str, Any]:
    """The config.json of an EAGLE head for it: a Llama 4 of one layer; vLLM reads an EagleLlama4ForCausalLM."""
    layers = {"num_hidden_layers": DRAFT_LAYERS["eagle"], "no_rope_layers": [0] * DRAFT_LAYERS["eagle"]}
    return tiny_llama4(cell) | layers
