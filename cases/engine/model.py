"""A tiny Llama 4 whose next token depends on what attention reaches: for vLLM to serve and transformers to judge.

Default random weights would not do: their tokens repeat whatever the context is, and a wrong mask would not show. Here
queries and keys are sharper and values louder than a common initialisation makes them, so that what a layer reads
outweighs the token it started from. Three of four layers are local, as in Llama 4, and their heads are the load's; what
has no say in attention (the hidden size, the MLPs, the vocabulary) is small.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import Llama4ForCausalLM, Llama4TextConfig

from cases.cell import Cell

LAYERS = (1, 1, 1, 0)
"""1 for a local layer, with rotary positions; 0 for a global one, without."""
HIDDEN, VOCABULARY = 128, 512
GAINS = {"q_proj": 1.5, "k_proj": 1.5, "v_proj": 3.0, "o_proj": 3.0, "lm_head": 2.0}
"""Deviation of the weights of a linear map, in units of 1 / sqrt(fan_in); 1 where none is given."""


def config_of(cell: Cell) -> Llama4TextConfig:
    """The model of a cell: its chunk size and the heads of its load."""
    load = cell.load
    return Llama4TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN,
        intermediate_size_mlp=HIDDEN,
        num_hidden_layers=len(LAYERS),
        no_rope_layers=list(LAYERS),
        num_attention_heads=load.num_heads,
        num_key_value_heads=load.num_kv_heads,
        head_dim=load.head_size,
        attention_chunk_size=cell.chunk,
        moe_layers=[],
        interleave_moe_layer_step=0,  # no layer has experts: vLLM reads this, transformers the line above
        max_position_embeddings=max(1 << 17, load.max_model_len),  # a limit of the load's, never of ours
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        bos_token_id=None,
        eos_token_id=None,
        dtype="float32",
    )


def of(cell: Cell) -> Llama4ForCausalLM:
    """The model, in float32 with eager attention: the same weights each time for the same heads."""
    model = Llama4ForCausalLM._from_config(config_of(cell), attn_implementation="eager")
    drawn = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        _draw(name, weight.data, drawn)
    return model.eval()


def write(model: Llama4ForCausalLM, cell: Cell, folder: Path) -> None:
    """The checkpoint, as transformers writes it; below `draft` that of an EAGLE head, where the cell drafts by one."""
    model.save_pretrained(folder)
    if cell.draft == "eagle":
        (folder / "draft").mkdir()
        _write_draft(cell, folder / "draft")


def _write_draft(cell: Cell, folder: Path) -> None:
    """An EAGLE head of one global layer with random weights. What it drafts is mostly wrong; what is right is chance.

    Its parts are those vLLM's EagleLlama4ForCausalLM loads (0.32.0: `models/llama4_eagle.py`): a map of the token's
    embedding beside the target's hidden state, decoder layers, a norm. Embeddings and lm_head are the target's.
    """
    config = config_of(cell)
    config.update({"num_hidden_layers": 1, "no_rope_layers": [0], "layer_types": ["full_attention"]})
    config.update({"draft_vocab_size": VOCABULARY})
    config.update({"yoco_global_kv_layer": None, "yoco_local_kv_layer": None, "architectures": ["Llama4ForCausalLM"]})
    config.save_pretrained(folder)
    drawn = torch.Generator().manual_seed(1)
    layer = Llama4ForCausalLM._from_config(config, attn_implementation="eager").model.layers[0]
    weights: dict[str, Any] = {f"layers.0.{name}": weight.data for name, weight in layer.named_parameters()}
    weights |= {"fc.weight": torch.empty(HIDDEN, 2 * HIDDEN), "norm.weight": torch.empty(HIDDEN)}
    for name, weight in weights.items():
        _draw(name, weight, drawn)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _draw(name: str, weight: torch.Tensor, drawn: torch.Generator) -> None:
    """Norms are 1, embeddings of unit deviation, linear maps of their gain over the root of their inputs."""
    part = name.split(".")[-2]
    if weight.dim() == 1:
        weight.fill_(1.0)
    else:
        deviation = 1.0 if part == "embed_tokens" else GAINS.get(part, 1.0) / weight.shape[1] ** 0.5
        weight.normal_(std=deviation, generator=drawn)
