"""Where in vLLM an exception came from, whatever it was turned into on the way."""

import sys
from types import ModuleType

import pytest

from cases.causes import cause_of
from cases.verdicts import Batch, Overflow, Overflowed, Wrong, words_of

FILE = "/x/lib/python3.11/site-packages/vllm/v1/utils.py"
HERE = {"file": "vllm/v1/utils.py", "line": 2, "function": "build"}
BATCH = Batch((1,), (1,))


@pytest.fixture(scope="module")
def vllm() -> ModuleType:
    """A file that stands where vLLM's do; `build` raises in it, or calls what does."""
    module = ModuleType("vllm_played")
    source = "def build(error, inner):\n    if inner is None: raise error\n    inner(error)\n"
    exec(compile(source, FILE, "exec"), module.__dict__)
    return module


def raised(vllm: ModuleType, error: Exception) -> Exception:
    try:
        vllm.build(error, None)
    except Exception as found:  # noqa: BLE001 - the one given
        return found
    raise AssertionError


def test_it_is_the_last_frame_of_vllm(vllm: ModuleType) -> None:
    assert cause_of(raised(vllm, KeyError("x"))) == {"exception": "KeyError", "words": "'x'", **HERE}

    def torch(error: Exception) -> None:
        raise error

    with pytest.raises(ValueError, match="short") as caught:
        vllm.build(ValueError("short"), torch)
    assert cause_of(caught.value) == {"exception": "ValueError", "words": "short", **HERE, "line": 3}


def test_a_raised_overflow_keeps_it_and_not_that_of_another_batch(vllm: ModuleType) -> None:
    cause = cause_of(raised(vllm, ValueError("short")))
    silent = Overflow("a", 2, 1, "silent", BATCH)
    with pytest.raises(Overflowed) as caught:
        raise Overflowed([silent, Overflow("b", 2, 1, "raised", BATCH, "", cause)]) from raised(vllm, KeyError("other"))
    assert cause_of(caught.value) == {"exception": "ValueError", "words": "short", **HERE}
    with pytest.raises(Overflowed) as caught:
        raise Overflowed([silent]) from raised(vllm, KeyError("other"))
    assert cause_of(caught.value) is None


def test_a_case_that_caught_it_and_judged_it_says_it(vllm: ModuleType) -> None:
    error = raised(vllm, AssertionError("no room"))
    wrong = Wrong(f"{words_of(error)}; batch: 1 of 1", cause_of(error))
    assert cause_of(wrong) == {"exception": "AssertionError", "words": "no room", **HERE}
    assert cause_of(Wrong("two rows are alike")) is None


def test_what_is_ours_has_none() -> None:
    assert cause_of(None) is None
    with pytest.raises(TypeError) as caught:
        sys.intern(1)  # type: ignore[arg-type]
    assert cause_of(caught.value) is None
