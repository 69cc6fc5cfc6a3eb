"""Metadata with one fault each."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cases import metadata
from cases.needs import Need
from cases.patterns import Chunked
from tests.inside.fakes import CHUNK, PAGE, THREE

NEED = Need.of(THREE, Chunked(CHUNK), PAGE)
"""Rows of 4, 4 and 1 tokens, in 2, 2 and 1 pages."""


@dataclass
class Prefill:
    seq_lens: Any
    cum_seq_lens_q: Any
    cum_seq_lens_kv: Any


@dataclass
class Metadata:
    slot_mapping: Any
    prefill: Prefill
    num_decodes: int = 0
    extra: Any = None


def right() -> Metadata:
    return Metadata(
        torch.arange(9),
        Prefill(torch.tensor([4, 4, 1]), torch.tensor([0, 4, 8, 9]), torch.tensor([0, 2, 4, 5])),
    )


def wrong(of: Metadata, builder: Any = None) -> list[str]:
    found = metadata.fields(of, builder or SimpleNamespace())
    return list(metadata.wrong(found, of, NEED, num_pages=6))


def test_what_is_right_is_not_wrong():
    assert wrong(right()) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: setattr(m, "slot_mapping", torch.arange(8)), "slot_mapping has 8 entries, by definition 9"),
        (lambda m: setattr(m, "slot_mapping", torch.arange(10)), "slot_mapping has 10 entries, by definition 9"),
        (lambda m: setattr(m.prefill, "cum_seq_lens_kv", torch.tensor([0, 2])), "prefill.cum_seq_lens_kv has 2"),
        (lambda m: setattr(m.prefill, "cum_seq_lens_q", torch.tensor([0, 4, 3, 9])), "prefill.cum_seq_lens_q falls"),
        (lambda m: setattr(m.prefill, "cum_seq_lens_q", torch.tensor([0, 4, 8, 10])), "runs from 0 to 10"),
        (lambda m: setattr(m.prefill, "seq_lens", torch.tensor([4, 4, 0])), "prefill.seq_lens has a row with 0"),
        (lambda m: setattr(m, "extra", torch.zeros(7, dtype=torch.int32)), "extra has 7 entries, which is no count"),
        (lambda m: setattr(m, "num_decodes", 1), "prefill.seq_lens has 3 entries, by definition 2"),
    ],
)
def test_what_is_wrong_is_told(change, said):
    changed = right()
    change(changed)
    assert any(said in words for words in wrong(changed)), wrong(changed)


def test_a_whole_buffer_of_the_builder_may_be_longer_and_not_shorter():
    buffer = torch.tensor([4, 4, 1, 99])
    of = right()
    of.prefill.seq_lens = buffer
    assert wrong(of, SimpleNamespace(lens=buffer)) == []
    assert wrong(of) == ["prefill.seq_lens has 4 entries, by definition 3"]
    of.prefill.seq_lens = buffer = torch.tensor([4, 4])
    assert wrong(of, SimpleNamespace(lens=buffer)) == ["prefill.seq_lens has 2 entries, by definition 3"]


def test_a_row_of_the_build_before_is_a_difference():
    def said(of: Metadata) -> dict[str, Any]:
        return metadata.snapshot(metadata.fields(of, SimpleNamespace()), of, NEED)

    stale = right()
    stale.prefill.cum_seq_lens_kv = torch.tensor([0, 2, 4, 4])
    assert list(metadata.differences(said(right()), said(right()))) == []
    assert list(metadata.differences(said(right()), said(stale))) == [
        "prefill.cum_seq_lens_kv differs in 1 entries, first 5, then 4"
    ]


def test_a_snapshot_does_not_change_with_the_memory_and_leaves_out_what_the_batch_does_not_need():
    buffer = torch.tensor([4, 4, 1, 99])
    of = right()
    of.prefill.seq_lens = buffer
    said = metadata.snapshot(metadata.fields(of, SimpleNamespace(lens=buffer)), of, NEED)
    buffer.zero_()
    assert said["prefill.seq_lens"].tolist() == [4, 4, 1]
