"""Which errors are refusals, and what became of a model that vLLM could not inspect."""

import logging
import runpy
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from cases import inspections, refusals
from cases.causes import cause_of
from cases.verdicts import MachineTrouble, Wrong

VLLM = """
import json
from pydantic import BaseModel, field_validator


class Config(BaseModel, extra="forbid"):
    size: int

    @field_validator("size")
    @classmethod
    def check(cls, size):
        if size % 16:
            raise ValueError("the size must be a multiple of 16")
        return size


def on_purpose(x):
    raise ValueError(
        f"this arch does not take pages of {x}"
    )


def not_registered(x):
    raise ValueError(f"Unknown attention backend: '{x}'. Valid options are: FLASHINFER")


def by_a_library(x):
    return json.loads("{" + x)


def in_passing(x):
    return int("a page of " + x)


def for_want_of_a_module(x):
    try:
        import vllm_lost_module
    except ImportError as error:
        raise ValueError("this backend is not there") from error


def unknown_name(x):
    try:
        return {}[x]
    except KeyError:
        raise ValueError(f"no such mode: {x}")


def by_a_field(x):
    return Config(size=7)


def of_an_argument(x):
    return Config(size=16, pages=x)
"""


@pytest.fixture
def raised(tmp_path: Path) -> Callable[[str], Exception]:
    """What a function of a vLLM raises."""
    file = tmp_path / "lib/site-packages/vllm/config.py"
    file.parent.mkdir(parents=True)
    file.write_text(VLLM)
    functions = runpy.run_path(str(file))

    def call(name: str) -> Exception:
        with pytest.raises(ValueError) as found:  # noqa: PT011 - which one is what is tested
            functions[name]("128")
        return found.value

    return call


@pytest.mark.parametrize("name", ["on_purpose", "unknown_name", "by_a_field"])
def test_what_vllm_raises_itself_is_a_refusal(name: str, raised: Callable[[str], Exception]) -> None:
    assert refusals.on_purpose(raised(name))


@pytest.mark.parametrize(
    "name", ["by_a_library", "in_passing", "for_want_of_a_module", "of_an_argument", "not_registered"]
)
def test_what_comes_up_in_passing_is_none(name: str, raised: Callable[[str], Exception]) -> None:
    assert not refusals.on_purpose(raised(name))


def test_what_the_cases_raise_is_none() -> None:
    def ours() -> None:
        raise ValueError("ours")

    with pytest.raises(ValueError, match="ours") as found:
        ours()
    assert not refusals.on_purpose(found.value)


def test_a_field_of_ours_is_none_of_vllms() -> None:
    class Ours(BaseModel, extra="forbid"):
        size: int

    with pytest.raises(ValueError, match="extra") as found:
        Ours(size=1, pages=2)  # type: ignore[call-arg]
    assert not refusals.on_purpose(found.value)


TEXT = """Error raised in subprocess:
<frozen runpy>:128: RuntimeWarning: 'vllm.model_executor.models.registry' found in sys.modules
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/envs/x/lib/python3.11/site-packages/vllm/model_executor/models/registry.py", line 1093, in load_model_cls
    mod = importlib.import_module(self.module_name)
  File "/envs/x/lib/python3.11/site-packages/vllm/model_executor/models/llama4.py", line 23, in <module>
    import lost
{last}
"""
SAID = "Model architectures ['Llama4ForCausalLM'] failed to be inspected. Please check the logs for more details."


def inspected(error: BaseException) -> Exception | None:
    """The reason for vLLM's words after its registry has logged an error."""
    inspections.watch()
    try:
        raise error
    except BaseException:
        logging.getLogger(inspections.LOGGER).exception("Error in inspecting model architecture '%s'", "Llama4")
    return inspections.reason_of(ValueError(SAID))


def failed(code: int, text: str) -> RuntimeError:
    """As `_run_in_subprocess` raises it."""
    error = RuntimeError(text)
    error.__cause__ = subprocess.CalledProcessError(code, ["python"])
    return error


@pytest.mark.parametrize(
    "last", ["ModuleNotFoundError: No module named 'lost'", "vllm.errors.Lost: nothing: here", "AssertionError"]
)
def test_the_error_of_an_inspection_is_dug_out_with_its_place(last: str) -> None:
    found = inspected(failed(1, TEXT.replace("{last}", last)))
    assert isinstance(found, Wrong)
    kind, _, words = last.rpartition(".")[2].partition(": ")
    assert str(found).startswith(f"vLLM cannot import its own model: {kind}: {words}")
    assert str(found).endswith("(vllm/model_executor/models/llama4.py:23 in <module>)")
    assert cause_of(found) == {
        "exception": kind, "words": words, "file": "vllm/model_executor/models/llama4.py", "line": 23,
        "function": "<module>",
    }  # fmt: skip


@pytest.mark.parametrize(
    "error",
    [
        failed(-signal.SIGKILL, "Error raised in subprocess:\n"),
        failed(-signal.SIGTERM, "Error raised in subprocess:\n"),
        failed(1, TEXT.replace("{last}", "MemoryError")),
        failed(1, TEXT.replace("{last}", "OSError: [Errno 28] No space left on device")),
        OSError(12, "Cannot allocate memory"),
        subprocess.TimeoutExpired(["python"], 60),
    ],
)
def test_an_inspection_that_was_ended_or_lacked_room_is_the_machines(error: Exception) -> None:
    assert isinstance(inspected(error), MachineTrouble)


def test_an_inspection_that_crashed_is_vllms() -> None:
    found = inspected(failed(-signal.SIGSEGV, "Error raised in subprocess:\n"))
    assert isinstance(found, Wrong)
    assert str(found) == "the process in which vLLM inspects the model died by SIGSEGV"


def test_another_refusal_has_nothing_to_do_with_it() -> None:
    assert inspections.reason_of(ValueError("No common block size for 32")) is None


def test_an_inspection_that_is_tried_again_asks_vllm_again(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[Any] = []

    class Registry:
        class _try_inspect_model_cls:  # noqa: N801 - vLLM's name
            cache_clear = staticmethod(lambda: forgotten.append(True))

    monkeypatch.setitem(inspections.sys.modules, inspections.LOGGER, Registry)
    inspected(failed(-signal.SIGKILL, ""))
    inspections.forget()
    assert forgotten
    assert inspections.LAST.raised is None
