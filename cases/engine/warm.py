"""What every engine would import and compile, done once in a worker, before it forks for its cells.

No engine is started and nothing is computed on an arch: a cell's process finds modules and compiled loops, no state.
"""

import importlib
import os

import torch._dynamo

IMPORTED_LATE = (
    "vllm.entrypoints.llm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.worker.cpu.model_runner",
    "vllm.model_executor.model_loader.default_loader",
    "vllm.model_executor.models.llama4",
    "vllm.model_executor.models.llama4_eagle",
    "vllm.v1.spec_decode.eagle",
    "transformers.models.llama4.modeling_llama4",
)
"""What vLLM imports only when it starts an engine or runs a first step."""


def warm() -> None:
    """Import all of it. One thread computes, as a pool would not survive a fork; and nothing is compiled by torch.

    What vLLM decorates with `torch.compile` beside the model (the ranks of log-probabilities) then runs as it is
    written: compiled it would cost each cell four seconds.
    """
    torch.set_num_threads(1)
    torch._dynamo.config.disable = True
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    for name in IMPORTED_LATE:
        importlib.import_module(name)
