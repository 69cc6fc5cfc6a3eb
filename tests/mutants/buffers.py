"""Faults in what is written where, and in the extents of what a build returns."""

from tests.mutants import mutants
from tests.mutants.mutants import BUILD, FI, FLEX, INIT, SIZED, SM80, SM80_SHORT, SM90, SM90_K3, SM100, TABLES, Mutant

MASK = FI + "FlashInferMetadataBuilder._get_decode_mask"
WRITES = "an array is written past its end"

BY_CHUNK = """(
            max_num_reqs * -(-kv_cache_spec.attention_chunk_size // kv_cache_spec.block_size)
            if getattr(kv_cache_spec, "attention_chunk_size", None) else max_num_pages
        ), dtype=torch.int32"""
"""With the hybrid manager off a global layer's spec carries the chunk too, but its rows have more pages than that."""

BUFFERS = (
    Mutant("global layers' page indices are sized by the chunk", INIT, mutants.INDICES, BY_CHUNK,
           ("flashinfer sm80 off k0 c64 few",), SIZED),
    Mutant("page indices are for half the pages", INIT, mutants.INDICES, "max_num_pages // 2, dtype=torch.int32",
           SM80_SHORT),
    Mutant("a last-page length is written past the end", TABLES, mutants.COPIED, mutants.PAST_THE_END, SM80),
    Mutant("XQA's query starts are those of all rows", FI + "FlashInferMetadataBuilder._compute_decode_query_lens",
           "q_len_per_req,\n        qo_indptr[: num_decodes + 1],\n        q_lens,",
           "q_len_per_req,\n        qo_indptr,\n        q_lens,", SM90_K3, SIZED),
    Mutant("decodes are told the key lengths of all rows", BUILD, "seq_lens_decode = seq_lens[:num_decodes]\n",
           "seq_lens_decode = seq_lens\n", SM90),
    Mutant("decodes are told the pages of all rows", BUILD, "block_tables=block_table_tensor[:num_decodes]",
           "block_tables=block_table_tensor", SM90),
    Mutant("prefills are told the query starts of all rows", BUILD,
           "qo_indptr[prefill_start:] - qo_indptr[prefill_start]\n", "qo_indptr - qo_indptr[prefill_start]\n", SM100),
    Mutant("a mask is kept for windows of any length", MASK, "key = (q_len_per_req, causal)", "key = causal", SM90_K3,
           SIZED),
    Mutant("flex keeps the lengths of a larger batch", FLEX + "build",
           "copy_to_persistent(self.persistent_seq_lens, seq_lens)",
           "num_reqs > 1 and copy_to_persistent(self.persistent_seq_lens, seq_lens)",
           ("flex_attention sm90 on k0 c64 few",)),
    Mutant("the worst batches are not tried", "cases.batches:worst", "named += all_phases(*of_the_cell)",
           "named = within_capacity(*of_the_cell) + 0 * ends(*of_the_cell) + 0 * all_phases(*of_the_cell)", SM80,
           "sized by virtual batches, short by one"),
    Mutant("guard words are not looked at", "cases.guards:_Place.outside", "part.cpu().numpy() != BYTE",
           "part.cpu().numpy() < 0", SM80, WRITES),
)  # fmt: skip
