"""What every engine would import and compile, done once in a worker, before it forks for its cells.

No engine is started and nothing is computed on an arch: a cell's process finds modules and compiled loops, no state.
"""

import importlib
import os
from types import SimpleNamespace

import numpy as np
import torch._dynamo
from vllm.platforms import current_platform

IMPORTED_LATE = (
    "vllm.entrypoints.llm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.uniproc_executor",
    "vllm.model_executor.model_loader.default_loader",
    "vllm.model_executor.models.llama4",
    "vllm.model_executor.models.llama4_eagle",
    "vllm.v1.spec_decode.eagle",
    "transformers.models.llama4.modeling_llama4",
)
"""What vLLM imports only when it starts an engine or runs a first step."""
ON_A_CPU = ("vllm.v1.worker.cpu_worker", "vllm.v1.worker.cpu.model_runner")
"""The same where a CPU computes. On a GPU they would be a fault of ours: the import of `vllm/v1/worker/cpu/shm.py` lets
torch.accelerator give the memory of the host, and wait for nothing."""
ON_A_GPU = ("vllm.v1.worker.gpu_worker", "vllm.v1.worker.gpu_model_runner")


def warm() -> None:
    """Import all of it, and let numba compile the n-gram search.

    One thread computes, and numba's threads are of the kind that a fork may leave behind. Nothing is compiled by torch:
    what vLLM decorates so beside the model (the ranks of log-probabilities) runs as it is written, which saves each
    cell four seconds.
    """
    torch.set_num_threads(1)
    torch._dynamo.config.disable = True
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", NUMBA_NUM_THREADS="1", NUMBA_THREADING_LAYER="workqueue")
    on_device = os.environ.get("ATTNMATRIX_EVIDENCE") == "device"
    for name in (*IMPORTED_LATE, *(ON_A_GPU if on_device else ON_A_CPU)):
        importlib.import_module(name)
    if not on_device:
        current_platform.register_triton_kernel_overrides()  # before numba is there, see the platform
    _compile_ngram_search()


def _compile_ngram_search() -> None:
    """As vLLM's proposer does when it is made; here of no model."""
    from vllm.v1.spec_decode.ngram_proposer import NgramProposer

    drafts = SimpleNamespace(prompt_lookup_min=1, prompt_lookup_max=3, num_speculative_tokens=1)
    proposer = NgramProposer(
        SimpleNamespace(
            speculative_config=drafts,
            model_config=SimpleNamespace(max_model_len=64),
            scheduler_config=SimpleNamespace(max_num_seqs=1),
            parallel_config=SimpleNamespace(tensor_parallel_size=1),
        )
    )
    tokens = np.zeros((1, 64), dtype=np.int32)
    proposer.propose(1, [[0]], np.ones(1, dtype=np.int32), tokens)
