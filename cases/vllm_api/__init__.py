"""The only package that imports vLLM: a cell in, vLLM's own objects out.

Its releases differ in what they call the same thing and where it is. `cases/releases.py` says which era a release is
of; each `era_*.py` serves one. An era is asked for (and nothing else in here knows a release):

- `CommonAttentionMetadata`, `Attention`, `chunked_layer`: the batch of a step, a global layer, a chunked layer;
- `config`: the VllmConfig of a command line;
- `kv_cache_groups`, `spec_of`, `backend_of`: the planner's groups, and the spec and backend of a layer in its group;
- `AttentionGroup`: layers of one backend and spec, and their metadata builders;
- `split`, `build`, `cudagraph_support`: virtual batches, metadata, and what a builder says of CUDA graphs.
"""

from cases import arch, releases  # noqa: F401 - arch first: it sets what vLLM reads from the environment

# isort: split
from vllm.version import __version__

releases.era_of(__version__)
try:
    from cases.vllm_api.deployment import (
        HAS_V2,
        VERSION,
        Deployment,
        beside,
        build,
        deploy,
        forget,
        split,
        step,
        warm,
        workspace,
    )
    from cases.vllm_api.kernels import decode_kernel, decode_window, has_draft_mask, prefills_by_trtllm_gen, resolved
    from cases.vllm_api.steps import NULL_PAGE, page_table
except (ImportError, AttributeError) as error:
    raise releases.unknown(__version__, error) from error

__all__ = [
    "HAS_V2",
    "NULL_PAGE",
    "VERSION",
    "Deployment",
    "beside",
    "build",
    "decode_kernel",
    "decode_window",
    "deploy",
    "forget",
    "has_draft_mask",
    "page_table",
    "prefills_by_trtllm_gen",
    "resolved",
    "split",
    "step",
    "warm",
    "workspace",
]
