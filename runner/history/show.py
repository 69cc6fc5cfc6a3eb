"""The answers as a person reads them; what comes from results is made harmless here."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from runner.history import trends
from runner.history.questions import Rate, Since
from runner.history.records import Record
from runner.history.story import Line, Story
from runner.history.trends import Pace, Point
from runner.model import Evidence, Fault
from runner.outcome import VERDICT_ORDER
from runner.reports.text import count, one_line, plain

_UNITS = ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def story(found: Story, limit: int) -> RenderableType:
    """The results of a cell, since when it is as it is, how often by chance, and how old the evidence is."""
    parts: list[RenderableType] = [Text(one_line(found.cell), style="bold"), _results(found.results[:limit])]
    if len(found.results) > limit:
        parts.append(Text(f"… and {count(len(found.results) - limit, 'older result')}: --limit shows more"))
    if not found.results:
        parts.append(Text("no result of this cell itself, only of other releases"))
    for line in found.lines:
        parts += [Text(""), *_line(line, str(found.symptom))]
    if found.rates:
        parts += [Text(""), Text("at the same revision, the newest first", style="bold")]
        parts += [_text(f"{rate_words(rate)}; {_revision(rate)}") for rate in found.rates[:5]]
    return Group(*parts)


def rate_words(rate: Rate) -> str:
    """`flaky: bad 3 of 10 times (30 %, 95 % interval 11 to 60 %), emulated`."""
    low, high = rate.interval
    return (
        f"{'flaky: ' if rate.flaky else ''}bad {rate.bad:,} of {rate.of:,} times ({100 * rate.rate:.0f} %, "
        f"95 % interval {100 * low:.0f} to {100 * high:.0f} %), {rate.evidence.value}"
    )


def age(seconds: float) -> str:
    """`3 days`, in the largest unit of which there is one."""
    if math.isnan(seconds):
        return "of unknown age"
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1.0, "second"))
    return count(max(0, int(seconds // size)), unit)


def changes(changed: Mapping[str, tuple[str, str]]) -> str:
    """`flashinfer 0.6.1 -> 0.7.2; resolved draft_mask False -> True`."""
    shown = {name: [one_line(value, 60) or "(none)" for value in values] for name, values in changed.items()}
    return "; ".join(f"{one_line(name, 60)} {' -> '.join(values)}" for name, values in shown.items())


def points(found: Sequence[Point]) -> RenderableType:
    """A table of the points, oldest first, and under it a line of bars for each verdict."""
    verdicts = sorted({verdict for point in found for verdict in point.verdicts}, key=VERDICT_ORDER.__getitem__)
    table = _table("", *(Text(str(verdict), style=_style(verdict.fault)) for verdict in verdicts), "cells", "evidence")
    for column in table.columns[1:-1]:
        column.justify = "right"
        column.no_wrap = False  # a long verdict gives way first, not what tells rows apart
    for column in (table.columns[0], table.columns[-1]):
        column.no_wrap = True
    for point in found:
        counts = [f"{point.verdicts.get(verdict, 0):,}" for verdict in verdicts]
        table.add_row(one_line(point.name, 60), *counts, f"{point.cells:,}", _evidence(point.evidence))
    bars = Table.grid(padding=(0, 2))
    for verdict in verdicts:
        values = [point.verdicts.get(verdict, 0) for point in found]
        bars.add_row(
            str(verdict), trends.sparkline(values), f"{values[0]:,} to {values[-1]:,}, at most {max(values):,}"
        )
    return Group(table, bars)


def flakiest(rates: Sequence[Rate]) -> RenderableType:
    if not rates:
        return Text("no cell was seen both ways at the same revision")
    table = _table("bad", "95 % interval", "evidence", "flakiest cells")
    for rate in rates:
        low, high = rate.interval
        interval = f"{100 * low:.0f} to {100 * high:.0f} %"
        table.add_row(f"{rate.bad:,} of {rate.of:,}", interval, rate.evidence.value, one_line(rate.cell, 120))
    return table


def slowest(paces: Sequence[Pace]) -> RenderableType:
    table = _table("median", "p95", "results", "evidence", "slowest cells")
    for pace in paces:
        times = (f"{pace.median_s:.2f} s", f"{pace.p95_s:.2f} s", f"{pace.of:,}")
        table.add_row(*times, pace.evidence.value, one_line(pace.cell, 120))
    return table


def oldest(aged: Sequence[tuple[Record, float]]) -> RenderableType:
    table = _table("age", "verdict", "evidence", "oldest evidence")
    for one, seconds in aged:
        table.add_row(age(seconds), one.verdict.value, one.evidence.value, one_line(one.cell, 120))
    return table


def _results(records: Sequence[Record]) -> RenderableType:
    """Two lines for each: when, what and where; and what was found with which versions. Ids are never broken."""
    lines: list[RenderableType] = []
    for one in records:
        facts = one.environment
        where = one_line(facts.get("gpu", "") or facts.get("machine", "") or "a machine without a name", 40)
        verdict = Text(f"{one.verdict.value:<11}", style=_style(one.verdict.fault))
        head = f"{one_line(one.ended_at[:16].replace('T', ' '), 16)}  "
        lines.append(Text.assemble(head, verdict, f" {one.evidence.value:<11} {one_line(one.run_id, 60)}, {where}"))
        versions = [(name, facts.get(name, "")) for name in ("vllm", "flashinfer", "candidate", "cases_digest")]
        said = ", ".join(f"{name.removesuffix('_digest')} {value}" for name, value in versions if value)
        lines.append(_text(one_line(f"{one.found}; {said}" if said else one.found, 300)))
    return Group(*lines)


def _line(line: Line, symptom: str) -> Iterable[RenderableType]:
    old = "" if math.isnan(line.age_s) else f", the newest result is {age(line.age_s)} old"
    yield Text(f"{line.evidence.value}{old}", style="bold")
    if len(line.releases) > 1 and line.over_releases:
        yield from _since("over releases", line.over_releases, symptom, _at_release)
    if line.over_time:
        yield from _since("over time", line.over_time, symptom, _at_time)


def _since(what: str, found: Since, symptom: str, at: Callable[[Record], str]) -> Iterable[RenderableType]:
    now, then = ("bad", "good") if found.bad else ("good", "bad")
    if found.before is None:
        yield _text(f"{what}: {now} ({symptom}) as far back as there are results, first {at(found.first)}")
    else:
        yield _text(f"{what}: first {now} {at(found.first)}, last {then} {at(found.before)} ({symptom})")
        if found.between:
            names = ", ".join(f"{at(one)} {one.state.value}" for one in found.between)
            yield _text(f"  between them, without a word on it: {names}")
        if found.changed:
            yield _text(f"  changed: {changes(found.changed)}")
    if found.bad:
        yield _text(f"  {found.first.found}")


def _at_release(one: Record) -> str:
    flashinfer = one.environment.get("flashinfer", "")
    return one_line(f"{one.release} (flashinfer {flashinfer})" if flashinfer else one.release, 80)


def _at_time(one: Record) -> str:
    return one_line(f"{one.ended_at[:16].replace('T', ' ')} in {one.run_id}", 90)


def _revision(rate: Rate) -> str:
    it = rate.revision
    parts = [
        f"vllm {it.vllm}",
        f"candidate {it.candidate}" if it.candidate else "",
        f"cases {it.cases[:8]}",
        f"seed {it.seed}",
    ]
    return one_line(", ".join(part for part in parts if part), 120)


def _evidence(counts: Mapping[Evidence, int]) -> str:
    return ", ".join(f"{counts[kind]:,} {kind.value}" for kind in Evidence if counts.get(kind)) or "none"


def _style(fault: Fault) -> str:
    return {Fault.PRODUCT: "bold red", Fault.NONE: ""}.get(fault, "bold magenta")


def _table(*heads: str | Text) -> Table:
    """The last column gives way where there is no room: an id in it is the last thing of its line."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for head in heads[:-1]:
        table.add_column(head, no_wrap=True)
    table.add_column(heads[-1], overflow="fold")
    return table


def _text(text: str) -> RenderableType:
    return Padding(Text(plain(text)), (0, 0, 0, 2), expand=False)
