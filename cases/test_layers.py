"""Each layer of the model has its own builder: a chunked one splits by its layer's chunk, a global one does not split.

With the hybrid manager off both kinds share a group of the KV cache, and once shared a builder:
https://github.com/vllm-project/vllm/pull/21707; a group's window was once taken for that of each of its layers:
https://github.com/vllm-project/vllm/pull/51756.
"""

from dataclasses import replace

import pytest

from cases import batches, kernel_inputs, vllm_api
from cases.cell import Cell
from cases.command_line import patterns
from cases.extents import Built, Need
from cases.stand_ins import OutOfRange
from cases.verdicts import Overflow, Overflowed
from cases.vllm_api import layers

pytestmark = pytest.mark.release(layers.KNOWN, "it groups layers inside its model runner")


@pytest.mark.kind("builder of each layer")
def test_each_layer_has_the_builder_of_its_kind(cell: Cell, deployment: vllm_api.Deployment) -> None:
    """Decodes and verify windows amid a second chunk: a chunked layer's rows see that chunk, others everything."""
    named = batches.within_capacity(batches.short_steps(cell.load), cell.spec_k, cell.pattern)[:2]
    for (name, layer), pattern in zip(layers.of(deployment).items(), patterns(cell), strict=True):
        judged = replace(layer, pattern=pattern)
        for n in named:
            need = Need.of(n.batch, pattern, layer.spec.block_size)
            step = vllm_api.step(layer, n.batch, shared_prefix=True)
            try:
                metadata = vllm_api.build(layer, layer.group.get_metadata_builder(), step)
            except OutOfRange as error:
                overflow = Overflow(error.buffer, error.required, error.allocated, "silent", n.batch, name)
                raise Overflowed([overflow]) from error
            wrong = list(kernel_inputs.wrong(Built(need, step, metadata, (), n.batch), judged))
            assert not wrong, f"{name}, whose tokens see {pattern}, {n.name}: {'; '.join(wrong)}; batch: {n.batch}"
