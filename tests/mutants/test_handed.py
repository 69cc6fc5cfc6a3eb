"""No value of vLLM that breaks its contract passes for a mistake of the cases: the cell fails and says what it got."""

from collections.abc import Iterator

import pytest

from tests.mutants import handed
from tests.mutants.client import Cases, running
from tests.mutants.mutants import Edit

pytestmark = [pytest.mark.env, pytest.mark.timeout(600), pytest.mark.xdist_group("mutants")]


@pytest.fixture(scope="module")
def cases() -> Iterator[Cases]:
    with running() as found:
        yield found


@pytest.mark.parametrize(
    ("edit", "cell"), [pytest.param(edit, cell, id=name) for name, edit, cell in handed.returned() + handed.fields()]
)
def test_a_value_that_breaks_its_contract_is_vllms_fault(edit: Edit, cell: str, cases: Cases) -> None:
    found = cases.judge([edit], [cell])[cell]
    of = {state: {name: one["message"] for name, one in found.items() if one["state"] == state}
          for state in sorted({one["state"] for one in found.values()})}  # fmt: skip
    assert "missing" not in of, of["missing"]
    assert "fail" in of, {name: one["state"] for name, one in found.items()}
