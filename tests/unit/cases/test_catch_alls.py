"""A rule, or a case's mark, that means all values of an axis but one says so: a value that is added is meant as well.

A list of the others would leave the new one out without a word: a CPU backend that passes on an arch without one, a
backend that is judged by fewer cases.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[3]
MATRIX: dict[str, Any] = yaml.safe_load((PROJECT / "matrix.yaml").read_text())
OPEN = ("backend", "arch", "case")
"""Axes that rules speak of by name. Rules about a load mean the size of its pages: a load that is added and has a wrong
one is refused by vLLM, and seen."""


def lists_all_but_one(axis: str, wanted: object, axes: dict[str, list[Any]]) -> bool:
    """Whether several values are listed, and at most one of the axis is not."""
    return isinstance(wanted, list) and len(wanted) > 1 and len(set(axes[axis]) - set(wanted)) <= 1


def listing_rules(document: dict[str, Any]) -> list[dict[str, Any]]:
    axes = document["axes"]
    return [
        rule
        for rule in document["rules"]
        if any(lists_all_but_one(axis, rule["exclude"].get(axis), axes) for axis in OPEN)
    ]


def marks(source: str) -> Iterator[tuple[str, object]]:
    """Each axis that a `cell` mark of a module speaks of by a list, with that list."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cell":
            for keyword in node.keywords:
                if keyword.arg and isinstance(keyword.value, ast.List | ast.Tuple):
                    yield keyword.arg, list(ast.literal_eval(keyword.value))


def test_no_rule_lists_all_values_but_one() -> None:
    assert listing_rules(MATRIX) == []


@pytest.mark.parametrize("module", sorted((PROJECT / "cases").rglob("test_*.py")), ids=lambda path: path.stem)
def test_no_mark_lists_all_values_but_one(module: Path) -> None:
    found = [(axis, values) for axis, values in marks(module.read_text()) if axis in MATRIX["axes"]]
    assert [axis for axis, values in found if lists_all_but_one(axis, values, MATRIX["axes"])] == []


def test_what_this_looks_for_is_found() -> None:
    others = ["flash_attn", "triton_attn", "flex_attention", "cpu_attn"]
    rule = {"exclude": {"arch": "cpu", "backend": ["flashinfer", *others[:-1]]}, "because": "of the platform"}
    assert listing_rules({**MATRIX, "rules": [*MATRIX["rules"], rule]}) == [rule]
    assert list(marks(f"others = pytest.mark.cell(backend={others}, arch=['sm90'])")) == [
        ("backend", others),
        ("arch", ["sm90"]),
    ]
    assert lists_all_but_one("backend", others, MATRIX["axes"])
    assert not lists_all_but_one("arch", ["sm90"], MATRIX["axes"])
    assert not lists_all_but_one("hybrid", ["on"], MATRIX["axes"])
