"""Puts the page together: a template, and a style and a script that are allowed by their digests alone."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from runner import results
from runner.model import AxisValue, CellResult
from runner.outcome import VERDICT_ORDER
from runner.reports import behind, heatmap, not_judged, patterns, summary
from runner.reports.html import packing, trend, words
from runner.reports.text import count, one_line

NAME = "report.html"
ADDRESS = re.compile(r"https?://[\w.:-]+(/[\w./~%?=&#+-]*)?", re.ASCII)
"""What is made a link; anything else that a known issue says is text."""
_HERE = Path(__file__).parent
SCRIPTS = ("text", "filter", "rows", "data", "map", "show", "pivot", "batch", "story", "moves", "frame", "keys", "main")
"""The parts of the script in `js/`, each before those that use it."""


def write(
    run: Path,
    rows: Sequence[CellResult],
    *,
    exit_code: int,
    title: str = "",
    history: Sequence[trend.Earlier] | None = None,
) -> None:
    """Writes report.html into a run directory; without a history, the runs beside it that had the same cells are it."""
    earlier = trend.neighbours(run, rows) if history is None else history
    results.write_atomically(run / NAME, render(rows, exit_code=exit_code, title=title, history=earlier))


def render(
    rows: Sequence[CellResult], *, exit_code: int, title: str = "", history: Sequence[trend.Earlier] = ()
) -> str:
    """The whole page; `history` is earlier runs of the same cells, oldest first."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    domain = patterns.domain(rows)
    axes = _in_order(domain)
    groups, groups_left_out = words.shown_groups(rows, domain)
    headroom = words.headroom(rows)
    more = {"groups": [group.cells for group in groups], "buffers": [buffer.cells for buffer in headroom]}
    packed = packing.pack(rows, axes, more=more)
    style, script = _style(), _script()
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests["address"] = lambda word: ADDRESS.fullmatch(word) is not None
    environment.filters["number"] = lambda number: f"{number:,}"
    return environment.get_template("page.html.j2").render(
        title=one_line(title, 120),
        policy=_policy(style, script),
        style=style,
        script=script,
        data=packed.text,
        cut_at=packed.cut_at,
        exit_line=summary.exit_line(exit_code),
        exit_code=exit_code,
        line=words.verdict_line(rows),
        hidden=[line for line in (behind.line(rows), not_judged.line(rows)) if line],
        planned=count(len(rows), "cell"),
        totals=words.total_of_each(rows, trend.lines(rows, history)),
        earlier=[one_line(one.name, 60) for one in history[-trend.MOST_RUNS :]],
        evidence=summary.evidence_of(rows),
        means=summary.EVIDENCE_MEANING,
        no_evidence_of=words.NO_EVIDENCE_OF,
        mark=heatmap.evidence_mark,
        groups=groups,
        groups_left_out=groups_left_out,
        headroom=headroom,
        widest=max([1.0, *(buffer.worst for buffer in headroom)]),
        reasons=summary.reasons(rows, limit=20),
        glyphs=sorted(heatmap.GLYPHS.items(), key=lambda item: VERDICT_ORDER[item[0]]),
    )


def _in_order(axes: patterns.Domain) -> Mapping[str, tuple[AxisValue, ...]]:
    """Numbers by size: a sample of a matrix has them in any order."""
    numbers = {axis for axis, values in axes.items() if all(isinstance(value, int) for value in values)}
    return {axis: tuple(sorted(values)) if axis in numbers else values for axis, values in axes.items()}


@lru_cache
def _style() -> str:
    return (_HERE / "page.css").read_text(encoding="utf-8")


@lru_cache
def _script() -> str:
    parts = [(_HERE / "js" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _policy(style: str, script: str) -> str:
    """Nothing may be loaded, sent or run but this very style and this very script (CSP level 3)."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
