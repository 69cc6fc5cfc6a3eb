"""vLLM's own Triton kernel on the metadata of its own builder, in Triton's interpreter: evidence `interpreted`.

Runs inside an environment, in a process of its own, behind the plugin `triton_on_a_cpu`. What is shown is the kernel's
arithmetic and indexing, not its machine code.
"""

import numpy as np
import pytest
import torch
from vllm.triton_utils import HAS_TRITON
from vllm.v1.attention.ops.triton_unified_attention import unified_attention

from cases import attention_inputs, extents, reference, vllm_api
from cases.cell import Cell, Load
from cases.patterns import Chunked
from cases.verdicts import Batch

CHUNK, PAGE = 64, 16
LOAD = Load("few", 4, 512, 512, PAGE, 8, 2, 64, "bfloat16")
GROUP = LOAD.num_heads // LOAD.num_kv_heads

BATCHES = {
    "one prefill over three chunks": Batch((130,), (130,)),
    "windows cut at each place, a decode and an extend": Batch((4, 4, 1, 20), (66, 67, 64, 70)),
    "decodes only": Batch((1, 1, 1), (64, 65, 17)),
}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("hybrid", [True, False])
def test_the_real_kernel_computes_the_definition(name: str, hybrid: bool) -> None:
    """float32 in the kernel against float64 by the definition; what no query may reach is NaN in the cache."""
    assert HAS_TRITON, "vLLM has turned Triton off: its kernel would not run"
    batch = BATCHES[name]
    cell = Cell("interpreted", "", "triton_attn", "sm90", hybrid, 3, CHUNK, LOAD, "emulated")
    deployment = vllm_api.deploy(cell)
    step = vllm_api.step(deployment, batch)
    metadata = vllm_api.build(deployment, deployment.new_builder(), step)
    table = extents.read(step.block_table_tensor).astype(np.int64)
    right = attention_inputs.expected(
        np.array(batch.query_lens), np.array(batch.seq_lens), Chunked(CHUNK), table, PAGE,
        group=GROUP, scale=LOAD.head_size**-0.5,
    )  # fmt: skip
    out = torch.full((*right.wanted.shape[:2], LOAD.head_size), torch.nan)
    unified_attention(
        q=_padded(right.cache.queries), k=_paged(right.cache.keys), v=_paged(right.cache.values), out=out,
        cu_seqlens_q=metadata.query_start_loc, max_seqlen_q=metadata.max_query_len,
        seqused_k=metadata.seq_lens, max_seqlen_k=metadata.max_seq_len,
        softmax_scale=LOAD.head_size**-0.5, causal=metadata.causal, window_size=(-1, -1),
        block_table=metadata.block_table, softcap=0, q_descale=None, k_descale=None, v_descale=None,
        seq_threshold_3D=metadata.seq_threshold_3D, num_par_softmax_segments=metadata.num_par_softmax_segments,
        softmax_segm_output=metadata.softmax_segm_output, softmax_segm_max=metadata.softmax_segm_max,
        softmax_segm_expsum=metadata.softmax_segm_expsum,
    )  # fmt: skip
    found = out.numpy()[:, :, : attention_inputs.SIZE]
    error = np.abs(found - right.wanted).max(axis=2)
    assert error.max() < 1e-5, f"query token and head {np.unravel_index(error.argmax(), error.shape)}: {error.max()}"


def _padded(vectors: reference.Floats) -> torch.Tensor:
    """The vectors of each head with zeros behind them, as long as the kernel wants a head: scores stay the same."""
    padded = np.zeros((*vectors.shape[:2], LOAD.head_size), np.float32)
    padded[..., : vectors.shape[2]] = vectors
    return torch.from_numpy(padded)


def _paged(slots: reference.Floats) -> torch.Tensor:
    """The cache as the kernel wants it: [pages, tokens of a page, KV heads, head size]."""
    return _padded(slots).reshape(-1, PAGE, slots.shape[1], LOAD.head_size)
