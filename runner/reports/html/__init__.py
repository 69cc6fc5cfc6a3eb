"""report.html: one page that needs no network; the heat map is its centre."""

from runner.reports.html.page import render, write
from runner.reports.html.trend import Earlier

__all__ = ["Earlier", "render", "write"]
