"""The one job summary of a workflow run: under GitHub's 1 MiB, which it would otherwise drop as a whole."""

from collections.abc import Mapping

from runner.ci import gate
from runner.ci.gate import Need
from runner.ci.gather import NAMES, Came, Gathered
from runner.ci.gather import code as code_of
from runner.ci.jobs import MOST_JOBS
from runner.reports import markdown, summary
from runner.reports.markdown import code
from runner.reports.text import one_line

LIMIT = 1_000_000
"""Bytes; GitHub's limit is 1 MiB for a step."""
TROUBLES = 20


def render(
    found: Gathered, needed: Mapping[str, Need], *, title: str = "", limit: int = LIMIT, links: bool = True
) -> str:
    """The verdict, what is wrong with jobs, what is missing, the jobs; then both sides, one with trouble first.

    Without `links`, no text of a result becomes one.
    """
    exit_code = gate.code(found, needed)
    told = gate.troubles(found, needed)
    head = [
        f"# Attention matrix{': ' + code(title) if title else ''}\n\n**{summary.exit_line(exit_code)}**\n",
        "".join(f"- {code(line, 500)}\n" for line in (*gate.unjudged(found), *told[:TROUBLES])),
        f"… and {len(told) - TROUBLES} more.\n" if len(told) > TROUBLES else "",
        _table(found.came) if found.came else "",
    ]
    text = "\n".join(part for part in head if part)
    left = limit - len(text.encode())
    sides = sorted(found.rows.items(), key=lambda pair: code_of(pair[1]) == 0)
    for place, (side, rows) in enumerate(sides):
        share = left // (len(sides) - place)
        part = "\n" + markdown.render(rows, exit_code=code_of(rows), title=NAMES[side], limit=share - 1, links=links)
        left -= len(part.encode())
        text += part
    return text


def _table(came: tuple[Came, ...]) -> str:
    rows = "".join(
        f"| {code(one.job.name, in_table=True)} | {code(' '.join(one.job.runs_on), in_table=True)} "
        f"| {NAMES[one.job.side]} | {one.planned:,} | {one.arrived:,} | {_note(one)} |\n"
        for one in came[:MOST_JOBS]
    )
    rest = f"\n… and {len(came) - MOST_JOBS:,} more jobs.\n" if len(came) > MOST_JOBS else ""
    return (
        "| job | machine | evidence | cells | came back | note |\n"
        f"| --- | --- | --- | ---: | ---: | --- |\n{rows}{rest}"
    )


def _note(one: Came) -> str:
    if one.troubles:
        return code(one_line(one.troubles[0], 200), in_table=True)
    if one.job.offline:
        return code(f"skipped: {one.job.offline}", 200, in_table=True)
    return f"attempt {one.attempt}" if one.attempt > 1 else ""
