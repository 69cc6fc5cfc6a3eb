"""Values with and without the contract that vLLM's must keep."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cases import handed
from cases.causes import cause_of
from cases.verdicts import HandedOver

INDICES, TABLE = torch.zeros(3, dtype=torch.int32), torch.zeros((3, 2), dtype=torch.int32)
WORDS = torch.zeros((3, 4, 2), dtype=torch.uint16)


@pytest.mark.parametrize(
    ("contract", "right", "wrong"),
    [
        (handed.COUNT, [0, 7, np.int32(3), torch.tensor(4)], [None, True, -1, 1.5, "1", [], torch.zeros(2)]),
        (handed.TEXT, ["a"], ["", None, b"a", 1]),
        (handed.OBJECT, [SimpleNamespace()], [None, True, 0, "", [], (), {}]),
        (handed.INDICES, [INDICES, INDICES.long()], [None, True, [1], INDICES.float(), TABLE, INDICES[0]]),
        (handed.TABLE, [TABLE], [None, [[1]], INDICES, TABLE.float(), TABLE.bool()]),
        (handed.MASK | handed.NOTHING, [WORDS, WORDS[0], None], [True, [], WORDS.int(), TABLE.bool(), WORDS[0, 0]]),
        (handed.list_of(handed.TEXT), [["a"], ("a", "b")], [None, [], ["a", 1], "a", {"a"}]),
        (handed.tables_of(2), [([1], []), [[1], [2]]], [None, True, [], ([1],), ([1], None), ([1], [True]), "ab"]),
        (handed.NAMED, [SimpleNamespace(name="a"), SimpleNamespace()], [None, SimpleNamespace(name=1)]),
    ],
)  # fmt: skip
def test_a_contract_holds_for_what_it_says(contract: handed.Contract, right: list[Any], wrong: list[Any]) -> None:
    for value in right:
        assert handed.handed("a value", value, contract) is value
    for value in wrong:
        with pytest.raises(HandedOver, match="vLLM handed over a value: expected") as found:
            handed.handed("a value", value, contract)
        assert contract.words in str(found.value)


def test_a_part_is_there_where_there_are_rows_for_it() -> None:
    right = SimpleNamespace(num_decodes=0, num_prefills=0, decode=None, prefill=None)
    assert handed.metadata(right, None) is right
    with pytest.raises(HandedOver, match=r"metadata.decode of 2 rows: expected an object of vLLM, got None"):
        handed.metadata(SimpleNamespace(num_decodes=2, num_prefills=0, decode=None, prefill=None), None)


def test_groups_have_each_layer_once() -> None:
    def group(*names: str) -> SimpleNamespace:
        return SimpleNamespace(layer_names=list(names), kv_cache_spec=SimpleNamespace())

    handed.groups_of([group("a"), group("b")], ["b", "a"])
    for lost in ([group("a")], [group("a", "b"), group("b")]):
        with pytest.raises(HandedOver, match="each layer of the model in one group"):
            handed.groups_of(lost, ["a", "b"])


def test_the_cause_is_the_function_of_vllm_that_made_it() -> None:
    scope: dict[str, Any] = {}
    exec(compile("\n\ndef build():\n    pass\n", "/envs/x/site-packages/vllm/v1/builder.py", "exec"), scope)
    with pytest.raises(HandedOver) as found:
        handed.handed("a mask", True, handed.MASK, scope["build"])
    assert cause_of(found.value) == {
        "exception": "HandedOver", "words": str(found.value), "file": "vllm/v1/builder.py", "line": 3,
        "function": "build",
    }  # fmt: skip
