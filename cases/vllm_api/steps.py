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
    prefix = int((seq_lens - query_lens).min()) // size if shared_prefix else 0
    table = torch.from_numpy(page_table(seq_lens, size, max_model_len, prefix))
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


def page_table(seq_lens: Any, block_size: int, max_model_len: int, prefix: int) -> np.ndarray[Any, Any]:
    """A block table [requests, pages of max_model_len], handed out from the highest page down.

    The first `prefix` pages of all requests are the same, as after a hit in the prefix cache; no other page is shared,
    and none is where its index would suggest.
    """
    own = -(-seq_lens // block_size) - prefix
    table = np.full((len(seq_lens), -(-max_model_len // block_size)), NULL_PAGE, np.int32)
    next_page = prefix + int(own.sum())
    table[:, :prefix] = np.arange(next_page, next_page - prefix, -1)
    next_page -= prefix
    for row, pages in enumerate(own.tolist()):
        table[row, prefix : prefix + pages] = np.arange(next_page, next_page - pages, -1)
        next_page -= pages
    return table
