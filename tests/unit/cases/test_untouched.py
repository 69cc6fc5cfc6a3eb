"""Imports in a worker on a GPU do not start CUDA: what modules ask is answered by another process."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from cases import untouched

H200 = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132)


class Cuda(ModuleType):
    """torch.cuda, in which each question starts CUDA, as `_lazy_init` does."""

    started = False

    def is_initialized(self) -> bool:
        return self.started

    def _ask(self, *_: object) -> object:
        self.started = True
        return 0

    is_available = device_count = current_device = get_device_properties = get_device_capability = get_device_name = (
        _ask
    )


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    torch = ModuleType("torch")
    torch.cuda = Cuda("torch.cuda")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(untouched, "devices", lambda: [H200])
    monkeypatch.setenv("ATTNMATRIX_EVIDENCE", "device")
    return torch.cuda  # type: ignore[attr-defined, no-any-return]


def test_what_modules_ask_when_imported_is_answered_without_starting_cuda(cuda: Cuda) -> None:
    """As FlashInfer 0.7.0.post1 asks: compilation_context.py, line 105; gdn_decode_bf16_state.py, line 2705."""
    with untouched.begin():
        asked = [cuda.get_device_capability(one) for one in range(cuda.device_count())]  # type: ignore[call-overload]
        processors = cuda.get_device_properties(0).multi_processor_count  # type: ignore[attr-defined]
        assert (asked, processors, cuda.is_available()) == ([(9, 0)], 132, True)
        assert untouched.trouble() == ""
    cuda.get_device_capability(0)
    assert cuda.started, "torch answers by itself again"
    assert "has started CUDA in the process that cells are forked from" in untouched.trouble()


def test_nothing_is_answered_where_no_device_is_to_be_used(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNMATRIX_EVIDENCE", "emulated")
    with untouched.begin():
        cuda.device_count()
    assert cuda.started
    assert untouched.trouble() == "", "on a presented arch it is nobody's trouble"


def test_a_device_that_does_not_answer_is_none(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(untouched, "ASK", "raise SystemExit(3)")
    assert untouched.devices() == []
    monkeypatch.setattr(untouched, "ASK", "print('[{\"major\": 9}]')")
    assert untouched.devices() == [SimpleNamespace(major=9)]
