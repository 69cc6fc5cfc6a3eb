"""Batches that vLLM makes up before the first request, and while a data-parallel rank has none."""

from cases.batches.formed import Named
from cases.cell import Load
from cases.verdicts import Batch

SHARES = "warm-up: all tokens of a step in equal shares"
MIXED_TOKENS = 16
"""Tokens of the step that warms prefill and decode up together (`mixed_batch_attention_warmup`)."""


def warm_up(load: Load, spec_k: int) -> list[Named]:
    """Steps that come to the builders without a scheduler, where sequences of max_model_len tokens are allowed.

    Source (0.32.0): `_dummy_run` of `v1/worker/gpu_model_runner.py` (mixed: one token each and a prefill with a context
    of one) and of `v1/worker/gpu/model_runner.py` (all tokens of a step in equal shares, from the start of each
    sequence); `v1/worker/gpu/warmup.py` (prompts of two tokens more than drafts, then windows behind them).
    """
    n, tokens = load.max_num_seqs, load.max_num_batched_tokens
    decodes = min(n - 1, MIXED_TOKENS // 2, tokens // 2)
    rest = min(MIXED_TOKENS, tokens) - decodes
    shares = _shares(tokens, min(n, tokens))
    prompt = spec_k + 2
    prompts = min(n, tokens // prompt)
    named = [
        Named(SHARES, Batch(shares, shares)),
        Named("warm-up: decodes and a prefill", Batch((1,) * decodes + (rest,), (1,) * decodes + (rest + 1,))),
        Named("warm-up: short prompts", Batch((prompt,) * prompts, (prompt,) * prompts)),
        Named("warm-up: first windows", Batch((1 + spec_k,) * prompts, (prompt + 1 + spec_k,) * prompts)),
        Named("an idle rank's step", Batch((1 + spec_k,), (1 + spec_k,))),
    ]
    return [n for n in named if n.batch.seq_lens and max(n.batch.seq_lens) <= load.max_model_len]


def _shares(tokens: int, requests: int) -> tuple[int, ...]:
    """As equal as can be, the longer ones last."""
    share, longer = divmod(tokens, requests)
    return (share,) * (requests - longer) + (share + 1,) * longer
