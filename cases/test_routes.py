"""Is what serves the cell what the cell is about: its kernels, and no full CUDA graph over virtual batches."""

from typing import Any

import pytest

from cases import routes, vllm_api
from cases.cell import Cell
from cases.verdicts import Substituted


@pytest.mark.cell(backend=["flashinfer"])
@pytest.mark.release(vllm_api.VERSION >= routes.SINCE, "its kernels are recorded, not judged")
@pytest.mark.kind("kernels of the arch")
def test_kernels_are_those_of_the_arch(cell: Cell, resolved: dict[str, Any]) -> None:
    """Prefill and decode kernel, draft mask; trtllm-gen's kernels read pages with heads outermost."""
    wanted = routes.expected(cell)
    got = routes.Kernels(resolved["prefill_kernel"], resolved["decode_kernel"], resolved["draft_mask"])
    assert got.prefill, "the builder raises on one prompt of no more than a chunk: nothing shows what serves it"
    if got != wanted:
        raise Substituted(f"{cell.arch} is to be served by {wanted}, vLLM chose {got}")
    if "trtllm-gen" in (got.prefill, got.decode) and (layout := resolved["kv_layout"]):
        assert layout.index("h") < layout.index("n"), f"trtllm-gen reads pages with heads outermost, they are {layout}"


@pytest.mark.release(vllm_api.VERSION >= (0, 10, 1), "it wraps no builder")
@pytest.mark.kind("CUDA graphs")
def test_no_full_graph_holds_virtual_batches(resolved: dict[str, Any]) -> None:
    """A step's virtual batches change with every token: a graph would replay those of the step it captured.

    Until https://github.com/vllm-project/vllm/pull/26034 the wrapper said what the wrapped backend supports, and again
    until https://github.com/vllm-project/vllm/pull/28739.
    """
    support, mode = resolved["cudagraph_support"], resolved["cudagraph"]
    assert support == "never", f"the chunked layers' builder says it takes CUDA graphs: {support}"
    assert not mode.startswith("full"), f"vLLM settled on CUDA graphs {mode} for a model with chunked layers"
