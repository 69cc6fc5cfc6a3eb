"""Model of the compiled `flex_attention` of PyTorch as vLLM calls it: dense, by block list and mask.

Source: PyTorch's documentation of `flex_attention` and `BlockMask`: a query block computes the KV blocks that its row
of `kv_indices` lists, and inside them applies `mask_mod` (`full_kv_indices`: without it). PyTorch's eager function
applies `mask_mod` to everything and ignores the list; its compiled CPU kernel does not build for vLLM's masks, so
neither runs here. Not modelled: log-sum-exp, kernel options.
"""

from typing import Any

import torch

from attnmatrix_vllm.contracts import FLOATS, require


def flex_attention(
    query: Any, key: Any, value: Any, score_mod: Any = None, block_mask: Any = None, scale: float | None = None, *,
    enable_gqa: bool = False, kernel_options: Any = None, return_aux: Any = None,
) -> torch.Tensor:  # fmt: skip
    """Shapes: query [1, heads, tokens, size], key and value [1, KV heads, slots, size]; the output is as the query."""
    require(return_aux is None, "log-sum-exp is not modelled")
    require(block_mask is not None, "a block mask is wanted")
    require(query.dtype in FLOATS and key.dtype == query.dtype == value.dtype, f"{query.dtype} and {key.dtype}")
    (batch, heads, tokens, size), (_, kv_heads, slots, _) = query.shape, key.shape
    require(batch == 1 and heads % kv_heads == 0, f"{batch} batches, {heads} heads, {kv_heads} KV heads")
    require(enable_gqa or heads == kv_heads, "heads are grouped, and enable_gqa is not set")
    require(
        block_mask.seq_lengths == (tokens, slots), f"the mask is of {block_mask.seq_lengths}, not {(tokens, slots)}"
    )
    visible = _visible(block_mask, tokens, slots)
    used = visible.any(0).nonzero().flatten()  # in order: most slots of a cache belong to nobody
    visible = visible[:, used]
    k, v = (t[0][:, used].double().repeat_interleave(heads // kv_heads, 0) for t in (key, value))
    poisoned = k.isnan().any(2).any(0) | v.isnan().any(2).any(0)
    k, v = (torch.where(poisoned[:, None], 0.0, t) for t in (k, v))
    score = query[0].double() @ k.transpose(1, 2) * (size**-0.5 if scale is None else scale)
    if score_mod is not None:
        zero, head = torch.tensor(0), torch.arange(heads)[:, None, None]
        score = score_mod(score, zero, head, torch.arange(tokens)[:, None], used)
    score = score.masked_fill(~visible, -torch.inf)
    weight = torch.exp(score - score.amax(2, keepdim=True).clamp(min=-1e300))
    out = weight @ v / weight.sum(2, keepdim=True).clamp(min=1e-300)
    out[:, (visible & poisoned).any(1)] = torch.nan
    return out.to(query.dtype)[None]


def _visible(mask: Any, tokens: int, slots: int) -> torch.Tensor:
    """Which slot each query token sees [tokens, slots]: its block's listed KV blocks, where `mask_mod` holds."""
    rows, columns = mask.BLOCK_SIZE
    zero = torch.tensor(0)
    seen = torch.zeros((tokens, slots), dtype=torch.bool)
    lists = [(mask.kv_num_blocks, mask.kv_indices, True), (mask.full_kv_num_blocks, mask.full_kv_indices, False)]
    for counts, indices, masked in lists:
        if counts is None:
            continue
        require(tuple(counts.shape[:2]) == (1, 1), "masks of their own for batches or heads are not modelled")
        for block, count in enumerate(counts[0, 0].tolist()):
            q = torch.arange(block * rows, min((block + 1) * rows, tokens))
            listed = indices[0, 0, block, :count].long()
            kv = (listed[:, None] * columns + torch.arange(columns)).flatten()
            require(not len(kv) or int(listed.max()) * columns < slots, "a KV block outside the cache is listed")
            kv = kv[kv < slots]
            if len(q) and len(kv):
                seen[q[:, None], kv] = mask.mask_mod(zero, zero, q[:, None], kv) if masked else True
    return seen
