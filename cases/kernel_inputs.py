"""What a build hands to its kernels about each row, against the rows by the definition.

Kernels find a row's query tokens through cumulative query lengths, and its keys either through a block table and a
length or through FlashInfer's paged tables (a pointer per row into a list of pages, and how full each last page is).
Both forms are read here as those kernels document them, and compared row by row and page by page.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cases import reference, vllm_api
from cases.extents import Built, read

Ints = reference.Ints


@dataclass(frozen=True)
class Wanted:
    """A run of rows by the definition; `page` and its `row` and `nth` list the pages that hold the rows' keys."""

    query_lens: Ints
    key_lens: Ints
    row: Ints
    nth: Ints
    page: Ints

    @classmethod
    def of(cls, built: Built, block_size: int, rows: slice) -> "Wanted":
        of, counts = built.need.rows, built.need.pages[rows]
        row = np.repeat(np.arange(len(counts)), counts)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        logical = of.first[rows][row] // block_size + nth
        page = read(built.step.block_table_tensor[of.request[rows][row], logical])
        return cls(of.query_lens[rows], of.key_lens[rows], row, nth, page)

    @property
    def query_starts(self) -> Ints:
        return np.concatenate([[0], np.cumsum(self.query_lens)])


def wrong(built: Built, deployment: vllm_api.Deployment) -> Iterator[str]:
    """What differs from the definition, in words; nothing if all is right."""
    metadata, rows, size = built.metadata, built.need.rows, deployment.spec.block_size
    yield from _same("num_actual_tokens", metadata.num_actual_tokens, rows.query_lens.sum())
    yield from _same("slot_mapping", metadata.slot_mapping, built.step.slot_mapping)
    yield from _same("causal", getattr(metadata, "causal", True), True)  # older kernels' metadata has no choice
    if not hasattr(metadata, "num_decodes"):
        wanted = Wanted.of(built, size, slice(None))
        yield from _in_a_block_table("", wanted, metadata.query_start_loc, metadata.seq_lens, metadata.block_table)
        yield from _same("max_query_len", metadata.max_query_len, rows.query_lens.max())
        # Not an upper bound: kernels walk the table up to it (https://github.com/vllm-project/vllm/pull/43991).
        yield from _same("max_seq_len", metadata.max_seq_len, rows.key_lens.max())
        if hasattr(metadata, "physical_to_logical"):
            yield from _flex(metadata, wanted)
        return
    window, uniform = vllm_api.decode_window(deployment)
    decodes = _decodes(rows.query_lens, window, uniform=uniform)
    yield from _same("num_decodes", metadata.num_decodes, decodes)
    yield from _same("num_prefills", metadata.num_prefills, len(rows.query_lens) - decodes)
    yield from _same("num_decode_tokens", metadata.num_decode_tokens, rows.query_lens[:decodes].sum())
    yield from _same("num_prefill_tokens", metadata.num_prefill_tokens, rows.query_lens[decodes:].sum())
    for name, run in (("decode", slice(0, decodes)), ("prefill", slice(decodes, None))):
        part, wanted = getattr(metadata, name), Wanted.of(built, size, run)
        if part is None or not len(wanted.key_lens):
            yield from _same(f"has a {name}", part is not None, len(wanted.key_lens) > 0)
        elif hasattr(part, "wrapper"):
            yield from _in_paged_tables(f"{name}: ", wanted, getattr(part.wrapper, "planned", None), size)
        else:
            starts = part.cum_seq_lens_q if name == "prefill" else getattr(part, "q_cu_seq_lens", None)
            yield from _in_a_block_table(f"{name}: ", wanted, starts, part.seq_lens, part.block_tables)
            if name == "prefill":
                longest = part.max_q_len
            elif uniform and starts is None:  # the backend divides, whatever the metadata says
                longest = metadata.num_decode_tokens // metadata.num_decodes
            else:
                longest = getattr(part, "q_len_per_req", 1)  # until 0.27 XQA takes no more
            yield from _same(f"{name}: longest query", longest, wanted.query_lens.max())
            if starts is None:
                yield from _same(f"{name}: query lengths", np.full_like(wanted.query_lens, longest), wanted.query_lens)
            if not wanted.key_lens.max() <= part.max_seq_len <= rows.key_lens.max():
                yield f"{name}: max_seq_len is {part.max_seq_len}, the longest row has {wanted.key_lens.max()} keys"


def _decodes(query_lens: Ints, window: int, *, uniform: bool) -> int:
    """Leading rows that a decode kernel serves: those of up to `window` tokens, or all as long as the first.

    One less is right but slow (https://github.com/vllm-project/vllm/pull/47381), one more is wrong.
    """
    fits = query_lens <= window
    if uniform:
        fits &= query_lens == query_lens[0]
    return len(fits) if fits.all() else int(fits.argmin())


def _in_a_block_table(name: str, wanted: Wanted, starts: Any, lengths: Any, table: Any) -> Iterator[str]:
    """Rows whose keys are in the first pages of their row of a block table, and as many as their length says."""
    rows = len(wanted.key_lens)
    if starts is not None:
        yield from _same(f"{name}query starts", starts[: rows + 1], wanted.query_starts)
    yield from _same(f"{name}key lengths", lengths[:rows], wanted.key_lens)
    if table.shape[0] < rows or table.shape[1] <= wanted.nth.max():
        yield f"{name}the block table is {tuple(table.shape)} for {rows} rows of up to {wanted.nth.max() + 1} pages"
    else:
        yield from _same(f"{name}pages", table[wanted.row, wanted.nth], wanted.page, wanted.row)


def _in_paged_tables(name: str, wanted: Wanted, planned: dict[str, Any] | None, size: int) -> Iterator[str]:
    """Rows whose keys are in the pages between two pointers; a real wrapper on a device keeps its tables to itself."""
    if planned is None:
        return
    pointers, last = read(planned["indptr"]), read(planned["last_page_len"])
    starts = planned.get("qo_indptr", np.arange(len(last) + 1) * planned.get("q_len_per_req", 1))  # a decode's are even
    yield from _same(f"{name}query starts", starts, wanted.query_starts)
    counts = np.diff(pointers)
    yield from _same(f"{name}key lengths", (counts - 1) * size + last, wanted.key_lens)
    if len(last) and not ((last >= 1) & (last <= size)).all():
        yield f"{name}last pages hold {last.tolist()} tokens of {size}"
    yield from _same(f"{name}pages", planned["indices"][pointers[0] : pointers[-1]], wanted.page, wanted.row)


def _flex(metadata: Any, wanted: Wanted) -> Iterator[str]:
    """FlexAttention's own maps: where a row starts, whose a query token is, and which key of a row a slot holds."""
    rows = len(wanted.key_lens)
    yield from _same("offsets", metadata.decode_offset[:rows], wanted.key_lens - wanted.query_lens)
    if hasattr(metadata, "doc_ids"):  # until 0.10.0 they are in the mask alone
        yield from _same("rows of tokens", metadata.doc_ids, np.repeat(np.arange(rows), wanted.query_lens))
    yield from _same("logical pages", metadata.physical_to_logical[wanted.row, wanted.page], wanted.nth, wanted.row)


def _same(name: str, found: Any, wanted: Any, rows: Ints | None = None) -> Iterator[str]:
    """Words for the first entry that differs, or for a length that does."""
    found, wanted = (np.atleast_1d(read(x) if hasattr(x, "detach") else np.asarray(x)) for x in (found, wanted))
    if found.shape != wanted.shape:
        yield f"{name}: {found.shape[0]} entries, by definition {wanted.shape[0]}"
    elif len(at := np.flatnonzero(found != wanted)):
        where = f" of row {rows[at[0]]}" if rows is not None else f" at {at[0]}" if len(wanted) > 1 else ""
        yield f"{name}{where}: {found[at[0]]}, by definition {wanted[at[0]]}"
