"""What reaches a builder without a scheduler: vLLM's own dummy batches, and requests of padding."""

from typing import Any

import pytest

from cases import batches, extents, kernel_inputs, vllm_api
from cases.cell import Cell
from cases.test_paged_kv_buffers import judge
from cases.verdicts import Batch
from cases.vllm_api import graphs


@pytest.mark.kind("batches that vLLM makes up")
def test_batches_that_vllm_makes_up_fit_and_are_right(cell: Cell, auditor: extents.Auditor) -> None:
    """A server that overruns here does not start."""
    overrun = []
    for n in batches.warm_up(cell.load, cell.spec_k):
        if n.name == batches.SHARES:
            made = graphs.dummy(len(n.batch.query_lens), sum(n.batch.query_lens))
            assert made in (n.batch, None), f"vLLM makes up another batch: {made}"
        built = auditor.build(n.batch)
        if built.overflows:
            overrun.append(n)
        else:
            wrong = list(kernel_inputs.wrong(built, auditor.deployment))
            assert not wrong, f"{n.name}: {'; '.join(wrong)}; batch: {n.batch}"
    judge(auditor, overrun)


@pytest.mark.release(graphs.DECIDES, "its model runner decides on CUDA graphs amid its own work")
@pytest.mark.kind("padding")
def test_requests_of_padding_get_no_row(deployment: vllm_api.Deployment, resolved: dict[str, Any]) -> None:
    """Requests without tokens stand behind the others in a step that is padded for a full CUDA graph, and only there.

    The splitter asks for a token in each ("we assume q_seqlens > 0") and would make a row with a whole chunk of keys of
    each. So either vLLM grants no full graph beside chunked local attention, whatever a user asks for, or it must be
    right about them.
    """
    granted = graphs.with_full_graphs(deployment, resolved["cudagraph_support"])
    if not granted:
        return
    chunk = deployment.cell.chunk
    padded = vllm_api.step(deployment, Batch((1, 0), (chunk, 0)))
    rows = extents.read(vllm_api.split(deployment, padded).seq_lens).tolist()
    assert rows == [chunk], (
        f"vLLM grants {', '.join(granted)}, whose steps are padded: a request of padding behind a decode makes rows "
        f"with {rows} keys instead of one row with {chunk}"
    )
