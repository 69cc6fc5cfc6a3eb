"""What the cases cannot judge in a release, as the results name it: a pass of an old release is a pass of less."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from runner.model import CellResult
from runner.reports.text import count, one_line

MOST = 3
"""Releases that a line names."""


def kinds(row: CellResult) -> dict[str, str]:
    """The kinds of case that did not judge a cell, and why. What the results say elsewise is no kind."""
    said = row.resolved.get("not_judged")
    pairs = said.items() if isinstance(said, Mapping) else ()
    return {one_line(str(kind), 80): one_line(str(because), 200) for kind, because in pairs}


def line(results: Sequence[CellResult]) -> str:
    """`vLLM 0.22.1: 12 cells were not judged by some cases: padding, CUDA graphs`; empty where every kind judged."""
    cells, missed = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for row in results:
        if unjudged := kinds(row):
            release = one_line(str(row.axes.get("vllm", "")), 40)
            cells[release] += 1
            missed[release].update(unjudged.keys())
    said = [
        f"vLLM {release}: {count(n, 'cell')} {'was' if n == 1 else 'were'} not judged by some cases: "
        + ", ".join(kind for kind, _ in missed[release].most_common())
        for release, n in cells.most_common(MOST)
    ]
    more = len(cells) - MOST
    return "; ".join(said) + (f"; and {count(more, 'more release')}" if more > 0 else "")
