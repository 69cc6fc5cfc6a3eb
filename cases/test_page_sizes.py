"""Blocks of the KV-cache manager that are larger than a kernel's pages."""

import pytest

from cases import batches, extents, kernel_inputs, vllm_api
from cases.cell import Cell
from cases.vllm_api import routes, variants


@pytest.mark.cell(backend=["flashinfer"], spec_k=[0])
@pytest.mark.release(routes.OWN_PAGES, "its kernels have the pages of its manager, or its model runner chooses them")
@pytest.mark.kind("pages of the manager's blocks")
def test_kernels_are_told_pages_of_their_own_size(cell: Cell, deployment: vllm_api.Deployment) -> None:
    """FlashInfer pages by 16, 32 or 64 tokens. Where the manager's block is larger, kernels get rows in their pages.

    Rows in the manager's blocks are silently wrong (https://github.com/vllm-project/vllm/pull/27753); a size picked for
    one backend only refuses to start (https://github.com/vllm-project/vllm/pull/48286).
    """
    load = batches.short_steps(cell.load)
    for size in (128, 256):
        other = variants.with_manager_blocks(deployment, size)
        page = other.spec.block_size
        assert page <= 64 or cell.arch in ("sm100", "sm103"), f"pages of {page} tokens, and no kernel takes them"
        assert size % page == 0, f"pages of {page} tokens in blocks of {size}"
        if cell.chunk % page or load.max_model_len < size:
            continue  # the splitter refuses such a chunk
        auditor = extents.Auditor(other)
        for named in batches.within_capacity(load, cell.spec_k, cell.pattern):
            built = auditor.build(named.batch)
            assert built.metadata is not None, f"{named.name}: {built}"
            wrong = list(kernel_inputs.wrong(built, other))
            assert not wrong, f"blocks of {size}, pages of {page}, {named.name}: {'; '.join(wrong)}"
