"""Whose trouble a module is that cannot be found."""

import pytest

from cases import causes
from cases.lacking import as_infra
from cases.verdicts import MachineTrouble


def meet(module: str, vllm: str = "0.32.0") -> None:
    with as_infra(vllm):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)


@pytest.mark.parametrize("module", ["cuda", "cuda.bindings.driver", "no_such_package"])
def test_a_package_that_the_environment_lacks_is_its_trouble(module: str) -> None:
    with pytest.raises(MachineTrouble, match="add it to the lock of this release") as found:
        meet(module)
    assert isinstance(found.value.__cause__, ModuleNotFoundError), "where vLLM imports it can still be told"
    assert causes.cause_of(found.value) is None


@pytest.mark.parametrize("module", ["vllm.models.gone", "vllm", "cases.gone", "torch.gone", ""])
def test_a_module_that_should_be_there_is_not(module: str) -> None:
    """vLLM's own, ours, or one of a package that is installed."""
    with pytest.raises(ModuleNotFoundError):
        meet(module)


def test_of_a_candidate_it_stays_what_it_is() -> None:
    """A new import of a name that nobody has is a fault of the patch."""
    with pytest.raises(ModuleNotFoundError):
        meet("no_such_package", vllm="fix")
