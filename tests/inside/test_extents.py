"""How each way of writing into a buffer that is too short shows itself."""

import ctypes
import dataclasses
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from vllm.v1.utils import CpuGpuBuffer

from cases import guards, owned
from tests.inside.fakes import ONE, THREE, auditor, cell

Pair = namedtuple("Pair", "first second")


class Pointers:
    """As FlashInfer's builder: the pages before each row, and in all; sized for one request."""

    def __init__(self, length: int = 2) -> None:
        self.paged_kv_indptr = torch.zeros(length, dtype=torch.int64)

    def build(self, pages: torch.Tensor, need: Any) -> Any:
        self.paged_kv_indptr[1 : 1 + len(pages)] = pages.cumsum(0)
        return self.paged_kv_indptr[: 1 + len(pages)]


class ByCumsum(Pointers):
    def build(self, pages: torch.Tensor, need: Any) -> Any:
        torch.cumsum(pages, 0, out=self.paged_kv_indptr[1 : 1 + len(pages)])
        return self.paged_kv_indptr[: 1 + len(pages)]


class InAPool(ByCumsum):
    """Its buffers are neighbours in one allocation."""

    def __init__(self) -> None:
        pool = torch.zeros(16, dtype=torch.int64)
        self.paged_kv_indptr, self.other = pool[:2], pool[2:]


class ByNumpy(Pointers):
    """Through an array that is longer than the memory that it is of."""

    def __init__(self) -> None:
        super().__init__()
        self.paged_kv_indptr_np = self.paged_kv_indptr.numpy()

    def build(self, pages: torch.Tensor, need: Any) -> Any:
        beyond = np.lib.stride_tricks.as_strided(self.paged_kv_indptr_np, (1 + len(pages),))
        beyond[1:] = pages.cumsum(0).numpy()
        return self.paged_kv_indptr


class Growing(Pointers):
    """Takes a larger buffer when it needs one."""

    def build(self, pages: torch.Tensor, need: Any) -> Any:
        if len(self.paged_kv_indptr) < 1 + len(pages):
            self.paged_kv_indptr = torch.zeros(1 + len(pages), dtype=torch.int64)
        return super().build(pages, need)


class Before(Pointers):
    """Writes before the start of a buffer that nothing is known about."""

    def build(self, pages: torch.Tensor, need: Any) -> Any:
        self.scratch = self.__dict__.get("scratch", torch.zeros(4, dtype=torch.int32))
        if guarded(self.scratch):
            ctypes.memset(self.scratch.data_ptr() - 4, 1, 4)
        return super().build(pages, need) if len(pages) == 1 else None


def guarded(tensor: torch.Tensor) -> bool:
    """Outside of guard words the faults of these builders would be real ones."""
    return tensor.untyped_storage().nbytes() > guards.ROOM


def shown(monkeypatch: pytest.MonkeyPatch, make: Any, batch: Any = THREE) -> list[tuple[str, int, int, str]]:
    found = auditor(monkeypatch, make)
    built = found.build(batch)
    overflows = built.overflows or found.silent(built)
    return [(o.buffer, o.required, o.allocated, o.how) for o in overflows]


def test_a_slice_that_is_too_short_raises_in_an_assignment(monkeypatch):
    with pytest.raises(RuntimeError):  # it comes from no file of vLLM: nothing says which buffer
        shown(monkeypatch, Pointers)


def test_cumsum_moves_the_storage_of_a_buffer_of_its_own(monkeypatch):
    assert shown(monkeypatch, ByCumsum) == [("paged_kv_indptr", 4, 2, "resized")]


def test_cumsum_writes_into_the_neighbour_of_a_view(monkeypatch):
    assert shown(monkeypatch, InAPool) == [("paged_kv_indptr", 4, 2, "silent")]


def test_a_write_through_an_array_is_seen_by_guard_words(monkeypatch):
    found = auditor(monkeypatch, ByNumpy)
    built = found.build(ONE)
    monkeypatch.setattr(found, "need", lambda _batch, real=found.need: real(THREE))
    (overflow,) = found.silent(built)
    # pointers of 3 rows: 1 + 3, of which 2 are past the end
    assert (overflow.buffer, overflow.allocated, overflow.how) == ("paged_kv_indptr", 2, "silent")
    assert "2 entries past its end and 0 before" in overflow.detail


def test_a_write_before_the_start_of_an_unknown_buffer_is_seen(monkeypatch):
    assert shown(monkeypatch, Before, ONE) == [("scratch", 5, 4, "silent")]


def test_a_larger_buffer_in_the_place_of_another_is_no_overflow(monkeypatch):
    assert shown(monkeypatch, Growing) == []


def test_an_unknown_buffer_that_moves_is_told_by_its_name(monkeypatch):
    class Unknown(ByCumsum):
        def __init__(self) -> None:
            super().__init__(8)
            self.lengths_buffer = torch.zeros(1)

        def build(self, pages: torch.Tensor, need: Any) -> Any:
            self.lengths_buffer.resize_(len(pages))
            return super().build(pages, need)

    with pytest.raises(AssertionError, match="the storage of lengths moved"):
        shown(monkeypatch, Unknown)


def test_a_buffer_below_the_bound_is_latent_with_what_was_written(monkeypatch):
    # N = 1, T = S = 16, c = 4: 16 tokens have 4 rows, which is 5 pointers; no start but 0 leaves room for more
    found = auditor(monkeypatch, lambda: Pointers(4), cell())
    for batch in (ONE, THREE):
        built = found.build(batch)
        assert not built.overflows + found.silent(built)
    (latent,) = found.latent()
    assert (latent.buffer, latent.required, latent.allocated, latent.how) == ("paged_kv_indptr", 5, 4, "latent")
    assert latent.batch == THREE
    assert "4 were written" in latent.detail


def test_a_buffer_below_the_bound_that_no_build_writes_is_not_latent(monkeypatch):
    class Aside(Pointers):
        def build(self, pages: torch.Tensor, need: Any) -> Any:
            return pages.cumsum(0)

    found = auditor(monkeypatch, lambda: Aside(4))
    found.silent(found.build(THREE))
    assert found.latent() == ()


def test_a_buffer_as_long_as_the_bound_is_not_latent(monkeypatch):
    found = auditor(monkeypatch, lambda: Pointers(5))
    found.silent(found.build(THREE))
    assert found.latent() == ()


def test_everything_a_builder_owns_is_found_and_nothing_it_was_given():
    @dataclasses.dataclass(frozen=True)
    class Part:
        starts: torch.Tensor

    class Slotted:
        __slots__ = ("lengths",)

    Slotted.__module__ = "vllm.v1.attention.backends.fake"
    given = type("Config", (), {"__module__": "vllm.config.fake"})()
    given.tensor = torch.zeros(1)

    builder = Pointers()
    builder.table = CpuGpuBuffer(3, dtype=torch.int32, device=torch.device("cpu"), pin_memory=False)
    builder.cache = {(4, True): torch.zeros(1)}
    builder.several = [Pair(torch.zeros(1), (torch.zeros(1),))]
    builder.part, builder.slotted, builder.config = Part(torch.zeros(1)), Slotted(), given
    builder.slotted.lengths = np.zeros(2)
    builder.itself = builder
    assert {name for name, _ in owned.walk(builder)} == {
        "paged_kv_indptr", "table.cpu", "table.gpu", "table.np", "cache.(4, True)", "several.0.0", "several.0.1.0",
        "part.starts", "slotted.lengths",
    }  # fmt: skip


def test_memory_is_back_after_the_guards_and_shared_in_between():
    builder = Pointers()
    builder.table = CpuGpuBuffer(3, dtype=torch.int32, device=torch.device("cpu"), pin_memory=False)
    builder.pair = Pair(builder.table.cpu, np.zeros(2))
    before = dict(owned.walk(builder))
    with guards.Guards(builder) as around:
        assert all(now is not before[name] for name, now in owned.walk(builder))
        builder.table.np[2] = 7
        assert builder.table.cpu[2] == builder.pair.first[2] == 7
        assert builder.table.gpu[2] == 0
    assert all(now is before[name] for name, now in owned.walk(builder))
    assert builder.table.cpu[2] == 0
    assert not around.left_inside
    assert not around.outside()


def test_a_view_that_stays_inside_is_noticed():
    builder = Pointers()
    with guards.Guards(builder) as around:
        builder.kept = builder.paged_kv_indptr[1:]
    assert around.left_inside


@pytest.mark.parametrize("name", ["lens", "lens.cpu", "lens_cpu", "lens_np", "lens_cpu_buffer", "lens.np"])
def test_twins_are_one_buffer(name):
    assert owned.buffer(name) == "lens"
