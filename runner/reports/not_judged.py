"""What the cases cannot judge in a release, as the results name it: a pass of an old release is a pass of less."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from runner.model import CellResult
from runner.reports.text import count, one_line

MOST = 3
"""Groups that a line names."""


def kinds(row: CellResult) -> dict[str, str]:
    """The kinds of case that did not judge a cell, and why. What the results say elsewise is no kind."""
    said = row.resolved.get("not_judged")
    pairs = said.items() if isinstance(said, Mapping) else ()
    return {one_line(str(kind), 80): one_line(str(because), 200) for kind, because in pairs}


def line(results: Sequence[CellResult]) -> str:
    """`vLLM 0.22.1: 12 cells were not judged by: padding, CUDA graphs`; empty where every kind of case judged."""
    groups: dict[tuple[str, tuple[str, ...]], int] = defaultdict(int)
    for row in results:
        if unjudged := kinds(row):
            groups[str(row.axes.get("vllm", "")), tuple(unjudged)] += 1
    said = []
    for (release, found), n in sorted(groups.items(), key=lambda item: -item[1]):
        cells = f"{count(n, 'cell')} {'was' if n == 1 else 'were'}"
        said.append(f"vLLM {one_line(release, 40)}: {cells} not judged by: {', '.join(found)}")
    more = len(said) - MOST
    return "; ".join(said[:MOST]) + (f"; and {count(more, 'more group')}" if more > 0 else "")
