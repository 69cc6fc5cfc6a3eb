"""A deployment shape for tests that need one and do not look at it: that of the public report."""

from runner.model import Load

SOLO = Load(
    name="solo",
    max_num_seqs=1,
    max_num_batched_tokens=36000,
    max_model_len=36000,
    block_size=16,
    num_heads=8,
    num_kv_heads=2,
    head_size=128,
    dtype="bfloat16",
)
