"""The files of a run directory that are made of results: each whole or absent."""

from collections.abc import Sequence
from pathlib import Path

from runner import results
from runner.model import CellResult
from runner.reports import ctrf, html, junit, markdown, prometheus


def write(run: Path, rows: Sequence[CellResult], *, exit_code: int, title: str = "") -> None:
    """results.json first: the others can be made from it again."""
    results.write_atomically(run / results.NAME, results.to_json(rows))
    results.write_atomically(run / "report.md", markdown.render(rows, exit_code=exit_code, title=title))
    results.write_atomically(run / "junit.xml", junit.render(rows))
    html.write(run, rows, exit_code=exit_code, title=title)
    results.write_atomically(run / "ctrf.json", ctrf.render(rows, title=title))
    results.write_atomically(run / "metrics.prom", prometheus.render(rows, exit_code=exit_code))
