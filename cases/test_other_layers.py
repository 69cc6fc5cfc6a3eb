"""The builders of the model's other layers, which see the whole sequence, on the batches that strain those most.

A step goes through the builders of all layers. With the hybrid manager off, the spec of a global layer carries the
chunk of the others, so that a builder which is sized by it is too small:
https://github.com/vllm-project/vllm/issues/49980.
"""

from dataclasses import replace

import pytest

from cases import batches, extents, kernel_inputs, vllm_api
from cases.cell import Cell
from cases.test_paged_kv_buffers import judge
from cases.verdicts import Overflowed

KEYS = 1 << 20
"""Keys that the query tokens of a prefill see together, at most: flex_attention's builder looks at each pair of them.

What these layers need most pages for are decodes, of which none is left out.
"""


@pytest.mark.kind("buffers of other layers")
def test_builders_of_other_layers_hold_their_worst_batches(cell: Cell, deployment: vllm_api.Deployment) -> None:
    """Each buffer holds what these layers need at most, and kernels are told the rows of the definition."""
    others = list(vllm_api.beside(deployment))
    assert others, "the model has no other layers: nothing was judged"
    for other in others:
        auditor = extents.Auditor(other)
        worst = batches.worst(cell.load, cell.spec_k, other.pattern)
        decodes = [n for n in worst if max(n.batch.query_lens) <= 1 + cell.spec_k]
        named = [n for n in worst if n in decodes or batches.keys_seen(n, other.pattern) <= KEYS]
        assert decodes or not worst, "no batch of decodes alone: the one with the most pages was not tried"
        try:
            judge(auditor, named)
            if latent := auditor.latent():
                raise Overflowed(latent)
        except Overflowed as error:
            kind = f"of layers that see {other.pattern}"
            theirs = [replace(one, buffer=f"{one.buffer} {kind}") for one in error.overflows]
            raise Overflowed(theirs, also=error.also) from error
        for n in named:
            wrong = list(kernel_inputs.wrong(auditor.build(n.batch), other))
            assert not wrong, f"layers that see {other.pattern}, {n.name}: {'; '.join(wrong)}; batch: {n.batch}"
