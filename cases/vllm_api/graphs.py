"""What vLLM decides about CUDA graphs, and the batches that it makes up itself.

A step is padded with requests of no tokens only for a full graph. Source (0.32.0): `pad_attn` in `execute_model` and
`_dummy_run` of `v1/worker/gpu_model_runner.py`, `prepare_attn` in `v1/worker/gpu/model_states/default.py`.
"""

import copy

import torch
from vllm import config as vllm_config

from cases.handed import NAMED, OBJECT, handed, having
from cases.verdicts import Batch
from cases.vllm_api import VERSION, Deployment

DECIDES = VERSION >= (0, 20, 0)
"""Whether the configuration decides on a mode; until then the model runner does, in the midst of its own work."""

FULL = ("FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
"""What a user may ask for that has full graphs."""


def with_full_graphs(deployment: Deployment, support: str) -> list[str]:
    """The modes among FULL that vLLM would grant to builders that support so much, rather than lower or refuse."""
    config = deployment.config
    from vllm.v1.attention.backend import AttentionCGSupport

    granted = []
    for asked in FULL:
        compilation = copy.copy(config.compilation_config)
        compilation.cudagraph_mode = vllm_config.CUDAGraphMode[asked]
        try:
            with vllm_config.set_current_vllm_config(config):
                got = compilation.resolve_cudagraph_mode_and_sizes(
                    AttentionCGSupport[support.upper()], "the chunked layers'", 1 + deployment.cell.spec_k
                )
        except ValueError:  # how vLLM refuses a mode
            continue
        handed("the mode of CUDA graphs", got, NAMED, compilation.resolve_cudagraph_mode_and_sizes)
        if got.has_full_cudagraphs():
            granted.append(asked)
    return granted


def dummy(num_reqs: int, num_tokens: int) -> Batch | None:
    """The batch that the V2 model runner makes up to warm up with so many tokens in so many requests.

    None for releases before 0.32.0, whose dummy batches have not been looked at.
    """
    if VERSION < (0, 32, 0):
        return None
    from vllm.v1.worker.gpu.input_batch import InputBatch, InputBuffers

    made = InputBatch.make_dummy(num_reqs, num_tokens, InputBuffers(num_reqs, num_tokens, torch.device("cpu")))
    handed("a dummy batch", made, having(num_scheduled_tokens=OBJECT, seq_lens=OBJECT), InputBatch.make_dummy)
    return Batch(tuple(made.num_scheduled_tokens.tolist()), tuple(made.seq_lens.tolist()))
