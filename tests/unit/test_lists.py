"""No list says what is so by naming all values but one: a value that comes later would be forgotten in silence."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner import matrix
from runner.conditions import Condition

PROJECT = Path(__file__).parents[2]
CHART = matrix.load(PROJECT / "matrix.yaml")


def all_but_one(axis: str, values: set[Any]) -> bool:
    there = set(CHART.axes[axis])
    return len(there) > 2 and values < there and len(there - values) == 1


def of_a_rule(axis: str, condition: Condition) -> bool:
    return condition.op in ("=", "==") and all_but_one(axis, set(condition.values))


def test_no_rule_of_the_shipped_matrix_names_all_values_but_one() -> None:
    found = [
        f"{rule.because}: {axis} {condition.values}"
        for rule in CHART.rules
        for axis, condition in rule.selector.conditions.items()
        if axis != "vllm" and of_a_rule(axis, condition)  # releases have an order: `<0.31` is read as a list
    ]
    assert found == []


def marks(path: Path) -> Iterator[tuple[int, str, set[Any]]]:
    """The axes of which a mark `cell` lists values."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.cell"):
            for keyword in node.keywords:
                if isinstance(keyword.value, ast.List):
                    yield node.lineno, str(keyword.arg), set(ast.literal_eval(keyword.value))


def test_no_mark_of_a_case_names_all_values_but_one() -> None:
    found = [(path, mark) for path in (PROJECT / "cases").rglob("test_*.py") for mark in marks(path)]
    assert len(found) > 5
    assert [(path.name, mark) for path, mark in found if all_but_one(mark[1], mark[2])] == []


def test_such_a_list_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        'pytestmark = pytest.mark.cell(backend=["flash_attn", "triton_attn", "flex_attention", "cpu_attn"])'
    )
    ((_, axis, values),) = marks(tmp_path / "test_x.py")
    assert all_but_one(axis, values)
    assert of_a_rule("load", Condition("=", ("solo", "server")))
    assert not of_a_rule("load", Condition("!=", ("small",)))
