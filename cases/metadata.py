"""All that a build returns, field by field: how long each tensor is, and what it holds.

The fields are found by walking, as buffers are. Which count of the batch a tensor must have is known by its name where
vLLM or FlashInfer documents it; any other integer tensor of one dimension must have some count of the batch: rows,
decodes, prefills, tokens, pages, or one more. A whole buffer of the builder's own is no smaller than needed, and counts
as far as it is needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cases import owned
from cases.needs import Need

WALKED = (*owned.WALKED, "attnmatrix_vllm.flashinfer_wrappers", "torch.nn.attention.flex_attention")
"""The models keep what their wrapper was given to plan; a block mask of FlexAttention is made of tensors."""

ROWS = {"seq_lens", "block_table", "block_tables", "block_table_tensor", "decode_offset", "num_blocks_per_seq"}
ROWS |= {"last_page_len", "physical_to_logical"}
STARTS = {"query_start_loc", "query_start_loc_cpu", "cum_seq_lens_q", "cum_seq_lens_kv", "q_cu_seq_lens"}
STARTS |= {"qo_indptr", "indptr"}
TOKENS = {"slot_mapping", "doc_ids"}
PAGES = {"indices"}
OPAQUE = {"scheduler_metadata"}
"""A schedule is the backend's own bytes, not all of which it writes."""
SEPARATE = OPAQUE | {"mask"}
"""Not of a count here: the draft mask has a case of its own."""


@dataclass(frozen=True)
class Field:
    """A tensor of the metadata: its path in it, the tensor, and whether it is a whole buffer of the builder's."""

    path: str
    tensor: torch.Tensor
    whole: bool

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


def fields(metadata: Any, builder: Any) -> list[Field]:
    """The tensors of a build's metadata."""
    buffers = {(t.data_ptr(), t.shape) for _, t in owned.walk(builder) if isinstance(t, torch.Tensor)}
    return [
        Field(path, tensor, (tensor.data_ptr(), tensor.shape) in buffers)
        for path, tensor in owned.walk(metadata, WALKED)
        if isinstance(tensor, torch.Tensor)
    ]


@dataclass(frozen=True)
class Part:
    """Rows, query tokens and pages of all rows of a step, of those that decode, or of those of prefill."""

    rows: int
    tokens: int
    pages: int

    @classmethod
    def of(cls, need: Need, run: slice) -> "Part":
        return cls(len(need.pages[run]), int(need.rows.query_lens[run].sum()), int(need.pages[run].sum()))

    def length(self, name: str) -> int | None:
        """How long a tensor of this name is; None for a name that is not known."""
        known = ((ROWS, self.rows), (STARTS, self.rows + 1), (TOKENS, self.tokens), (PAGES, self.pages))
        return next((count for names, count in known if name in names), None)


def parts(metadata: Any, need: Need) -> dict[str, Part]:
    """By the first word of a tensor's path: rows of decode stand before those of prefill. "" is for all others."""
    decodes = getattr(metadata, "num_decodes", 0)
    runs = {"": slice(None), "decode": slice(0, decodes), "prefill": slice(decodes, None)}
    return {name: Part.of(need, run) for name, run in runs.items()}


def wrong(found: list[Field], metadata: Any, need: Need, num_pages: int) -> Iterator[str]:
    """Words for each tensor that is not of its count of the batch, falls where it must rise, or is out of range."""
    of_all = parts(metadata, need)
    counts = {c for part in of_all.values() for c in (part.rows, part.rows + 1, part.tokens, part.pages)}
    counts.add(int(need.pages.max()))
    for field in found:
        if field.name in SEPARATE or not field.tensor.dim():
            continue
        whole_step = field.name in PAGES  # the rows of both parts point into one list of pages
        part = of_all["" if whole_step else field.path.split(".")[0] if field.path.split(".")[0] in of_all else ""]
        has, wanted = field.tensor.shape[0], part.length(field.name)
        if wanted is None:
            counted = field.tensor.dim() == 1 and field.tensor.dtype in (torch.int32, torch.int64)
            if counted and not field.whole and has not in counts:
                yield f"{field.path} has {has} entries, which is no count of the batch {sorted(counts)}"
        elif has < wanted or (has > wanted and not field.whole):
            yield f"{field.path} has {has} entries, by definition {wanted}"
        else:
            yield from _out_of_range(field, part, wanted, of_all[""], num_pages)


def _out_of_range(field: Field, part: Part, wanted: int, all_rows: Part, num_pages: int) -> Iterator[str]:
    values = field.tensor[:wanted]
    if not values.numel():
        return
    low, high = int(values.min()), int(values.max())
    if field.name in STARTS:
        if bool((values[1:] < values[:-1]).any()):
            yield f"{field.path} falls: {values.tolist()}"
        if low < 0 or high > max(part.tokens, all_rows.pages):
            yield f"{field.path} runs from {low} to {high}, of {part.tokens} tokens and {all_rows.pages} pages"
    elif field.name.startswith("block_table") or field.name in PAGES:
        if low < 0 or high >= num_pages:
            yield f"{field.path} has pages from {low} to {high}, of {num_pages}"
    elif field.name in ("seq_lens", "last_page_len", "num_blocks_per_seq") and low < 1:
        yield f"{field.path} has a row with {low}"


def snapshot(found: list[Field], metadata: Any, need: Need) -> dict[str, np.ndarray[Any, Any]]:
    """What the metadata says now: builders use their memory again. Whole buffers as far as the batch needs them."""
    of_all, said = parts(metadata, need), {}
    for field in found:
        part = of_all.get(field.path.split(".")[0], of_all[""])
        needed = part.length(field.name)
        if field.name in OPAQUE or (field.whole and needed is None):
            continue  # the latter is scratch, that kernels write
        values = field.tensor if needed is None or not field.whole else field.tensor[:needed]
        values = values.view(torch.uint8) if values.dtype == torch.uint32 else values
        said[field.path] = values.detach().clone().cpu().numpy()
    for name, value in vars(metadata).items():
        if isinstance(value, int | float | np.integer):
            said[name] = np.asarray(value)
    return said


def differences(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    """Words for each field that the two have not in common."""
    for path in sorted(one.keys() | other.keys()):
        if path not in one or path not in other:
            yield f"{path} is only in one"
        elif one[path].shape != other[path].shape:
            yield f"{path} has {one[path].shape} entries, then {other[path].shape}"
        elif len(at := np.flatnonzero(one[path] != other[path])):
            yield f"{path} differs in {len(at)} entries, first {one[path].flat[at[0]]}, then {other[path].flat[at[0]]}"
