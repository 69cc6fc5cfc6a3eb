"""At most ten annotations of a workflow run, the worst first: GitHub shows ten of a step and drops the rest silently.

Source: docs.github.com, "Workflow commands for GitHub Actions": `::error title=T::M`, `::stop-commands::`.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence

from runner.ci import gate
from runner.ci.gate import Need
from runner.ci.gather import Gathered
from runner.model import CellResult, Fault
from runner.reports import grouping, patterns
from runner.reports.fields import fields, headline
from runner.reports.grouping import Group
from runner.reports.text import count, one_line

MOST = 10


def annotations(found: Gathered, needed: Mapping[str, Need]) -> list[str]:
    """Commands to print, one a line: trouble of the product by badness, of jobs and machines, then missing evidence."""
    worst = [
        (group, patterns.domain(rows))
        for rows in found.rows.values()
        for group in grouping.groups(rows)
        if not group.expected
    ]
    worst.sort(key=lambda pair: grouping.rank(pair[0]))
    jobs = [*gate.broken(needed), *found.troubles]
    told = [command("error", "a job of the matrix", trouble) for trouble in jobs]
    product = [_of(*pair) for pair in worst if pair[0].verdict.fault is Fault.PRODUCT]
    others = [_of(*pair) for pair in worst if pair[0].verdict.fault is not Fault.PRODUCT]
    absent = [command("warning", "missing evidence", line) for line in gate.missing(found)]
    none = [command("notice", "no cell was judged", found.nothing)] if found.nothing else []
    return _cut([*product, *told, *others, *absent, *none])


def of_run(rows: Sequence[CellResult]) -> list[str]:
    """The same for a run that stands alone."""
    axes = patterns.domain(rows)
    return _cut([_of(group, axes) for group in grouping.groups(rows) if not group.expected])


def _cut(told: Sequence[str]) -> list[str]:
    if len(told) <= MOST:
        return list(told)
    rest = count(len(told) - MOST + 1, "other")
    return [*told[: MOST - 1], command("warning", "and more", f"{rest}: the job summary has all of them")]


def _of(group: Group, axes: patterns.Domain) -> str:
    kind = "error" if group.verdict.fault is Fault.PRODUCT else "warning"
    return command(kind, headline(group), "\n".join(_lines(group, axes)))


def _lines(group: Group, axes: patterns.Domain) -> Iterator[str]:
    for field in fields(group, axes, brief=True):
        if field.name != "known":
            yield f"{field.name}: {one_line('; '.join(field.lines), 400)}"


def command(kind: str, title: str, message: str) -> str:
    """A workflow command on one line, with what would end it or begin another one escaped."""
    return f"::{kind} title={_escape(one_line(title, 200), ':,')}::{_escape(message)}"


def _escape(text: str, also: str = "") -> str:
    for char in "%\r\n" + also:
        text = text.replace(char, f"%{ord(char):02X}")
    return text


def muted() -> tuple[str, str]:
    """Two lines between which GitHub takes nothing that is printed for a command; nobody can guess the second one."""
    token = secrets.token_hex(16)
    return f"::stop-commands::{token}", f"::{token}::"
