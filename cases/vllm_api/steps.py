"""The batch of one step, as the model runner hands it to a metadata builder."""

from typing import Any

import numpy as np
import torch

from cases.verdicts import Batch

NULL_PAGE = 0
"""vLLM's block pool keeps page 0 as the null block: what a block table holds where there is no page."""


def step_of(
    metadata: Any, batch: Batch, size: int, max_model_len: int, device: torch.device, *, shared_prefix: bool
) -> Any:
    """The batch as vLLM's `metadata` class, with pages of `size` tokens; a release gets the fields that it knows."""
    query_lens, seq_lens = np.array(batch.query_lens, np.int32), np.array(batch.seq_lens, np.int32)
    starts = np.concatenate([[0], np.cumsum(query_lens)]).astype(np.int32)
    contexts = seq_lens - query_lens if shared_prefix else np.zeros_like(seq_lens)
    table = torch.from_numpy(page_table(seq_lens, contexts, size, max_model_len))
    lens, computed = torch.from_numpy(seq_lens), torch.from_numpy(seq_lens - query_lens)
    fields = {
        "query_start_loc": torch.from_numpy(starts).to(device),
        "query_start_loc_cpu": torch.from_numpy(starts),
        "seq_lens": lens.to(device),
        "num_reqs": len(query_lens),
        "num_actual_tokens": int(query_lens.sum()),
        "max_query_len": int(query_lens.max()),
        "max_seq_len": int(seq_lens.max()),
        "block_table_tensor": table.to(device),
        # any slots do, so long as no two are the same: a builder hands them on
        "slot_mapping": torch.arange(1, 1 + int(query_lens.sum()), dtype=torch.int64, device=device),
        # what the model runner knows on the host: under these names until 0.12, as private fields until 0.29
        "seq_lens_cpu": lens,
        "num_computed_tokens_cpu": computed,
        "_seq_lens_cpu": lens,
        "_num_computed_tokens_cpu": computed,
        "seq_lens_cpu_upper_bound": lens,
    }
    return metadata(**{name: value for name, value in fields.items() if name in metadata.__dataclass_fields__})


def page_table(seq_lens: Any, contexts: Any, block_size: int, max_model_len: int) -> np.ndarray[Any, Any]:
    """A block table [requests, pages of max_model_len], handed out from the highest page down.

    The whole pages of a request's context are those of the request with the longest one, as after a hit in the prefix
    cache; no other page is shared, and none is where its index would suggest.
    """
    longest, shared = int(contexts.argmax()), contexts // block_size
    shared[longest] = 0
    own = -(-seq_lens // block_size) - shared
    table = np.full((len(seq_lens), -(-max_model_len // block_size)), NULL_PAGE, np.int32)
    next_page = int(own.sum())
    for row in (longest, *(row for row in range(len(seq_lens)) if row != longest)):
        table[row, : shared[row]] = table[longest, : shared[row]]
        table[row, shared[row] : shared[row] + own[row]] = np.arange(next_page, next_page - own[row], -1)
        next_page -= int(own[row])
    return table
