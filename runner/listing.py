"""How `runner plan` shows what would run, where, and why the rest would not."""

from collections import Counter
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from runner.options import EngineName
from runner.plan import Plan, to_rows


def summary(plan: Plan) -> str:
    """`cells: 3780, of them 2052 to run and 1728 unsupported`"""
    excluded, skipped = len(plan.unsupported), len(plan.skipped)
    left = len(plan.planned) - excluded - skipped
    lacking = f", {skipped} skipped" if skipped else ""
    return f"cells: {len(plan.planned)}, of them {left} to run{lacking} and {excluded} unsupported"


def table(plan: Plan, engine: EngineName) -> RenderableType:
    """The groups of cells that run, the reasons of those that do not, and the sum."""
    parts: list[RenderableType] = []
    if plan.orders:
        groups = Table("environment", "evidence", "engine", box=box.SIMPLE_HEAD, title="to run", title_justify="left")
        groups.add_column("cells", justify="right")
        for order in plan.orders:
            groups.add_row(f"vllm {order.environment}", order.evidence.value, engine.value, str(len(order.cells)))
        parts.append(groups)
    for title, counted in (("skipped", _skipped(plan)), ("unsupported", _reasons(plan))):
        if counted:
            reasons = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
            reasons.add_column("because", overflow="fold")
            reasons.add_column("cells", justify="right")
            for reason, count in counted.items():
                reasons.add_row(Text(reason), str(count))
            parts.append(reasons)
    return Group(*parts, Text(summary(plan)))


def as_json(plan: Plan, engine: EngineName) -> dict[str, Any]:
    """The same as plain data, with every cell."""
    return {
        "engine": engine.value,
        "groups": [
            {"environment": order.environment, "evidence": order.evidence.value, "cells": len(order.cells)}
            for order in plan.orders
        ],
        "unsupported": dict(_reasons(plan)),
        "skipped": dict(_skipped(plan)),
        "cells": to_rows(plan),
    }


def _reasons(plan: Plan) -> Counter[str]:
    return Counter(one.cell.unsupported for one in plan.unsupported)


def _skipped(plan: Plan) -> Counter[str]:
    return Counter(one.skipped for one in plan.skipped)
