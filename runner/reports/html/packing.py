"""The rows as the page's script reads them: every repeated text, case list and environment once, cells as numbers.

Everything in it came from results, which are untrusted: texts are made `plain` and cut here, and the script only ever
sets text.

The format, read by `js/data.js` (indexes count from 0):

- `names`: the verdicts, states, evidences and hows, in an order of ours
- `axes`: for each axis its `name`, `values`, `labels`, whether it `counts` (can be compared with <), is of
  `releases` (which can be, too) and `shows`
- `texts`: each a string, or `[before, after]` where the cell's own id stands between the two
- `batches`: `[requests, runs]`, a run is `[query_len, seq_len, times]`; more requests than runs: the rest was left out
- `overflows`: `[buffer text, required, allocated, how, batch]`
- `stories`: lists of cases, each `[name text, state, message text, [overflow, ...], raised text, after]`; `after` is 1
  for a case that ended at what another one tells and judged nothing else, and 0 for others
- `facts`: lists of `[name, value]` texts: an environment, or what vLLM resolved
- `cells`: `[id, [value on each axis], verdict, state, evidence (-1: none), story, [ms of each case], [overflow, ...],
  reason, repro, known, environment, resolved, ms, [rerun state, ...], ended_at, expected, behind]`; `behind` says what
  else was judged where an issue is known
"""

import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from runner.axes import COUNTS, PRODUCTS, RELEASES, AxisValues, in_id, label
from runner.model import Batch, CaseResult, CellResult, Evidence, How, Overflow, State, Verdict
from runner.reports import behind, heatmap
from runner.reports.fields import raised
from runner.reports.findings import findings
from runner.reports.summary import NOT_OBTAINED
from runner.reports.text import one_line, plain

BYTES = 5_500_000
"""Of the packed rows; the whole page is to stay under 6 MB."""
LIMITS = (4000, 1500, 500, 200, 80)
"""Characters of a text, tried in turn until the rows fit."""
MAX_RUNS = 256
"""Of like requests in a batch: what a person can still look at."""

MOST = 2**53 - 1
"""What a number in a script can count to."""

VERDICTS, STATES, EVIDENCES, HOWS = list(Verdict), list(State), list(Evidence), list(How)


@dataclass(frozen=True, slots=True)
class Packed:
    """The rows as JSON, and to how many characters texts were cut where one was."""

    text: str
    cut_at: int


def pack(rows: Sequence[CellResult], axes: AxisValues, *, more: Mapping[str, Any]) -> Packed:
    """The rows, and what else the script needs, as JSON that can stand in a script element."""
    for limit in LIMITS:
        found = _Packer(axes, limit)
        cells = [found.cell(row) for row in rows]
        text = embeddable({**_head(axes), **found.tables(), "cells": cells, **more})
        texts = len(embeddable(found.tables()["texts"]))
        if len(text) <= BYTES or len(text) - texts > BYTES:  # fits, or cannot for the number of cells alone
            break
    return Packed(text, limit if found.was_cut else 0)


def embeddable(value: Any) -> str:
    """JSON in ASCII without <, > and &: no text in it can end a script element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _head(axes: AxisValues) -> dict[str, Any]:
    return {
        "names": {"verdicts": VERDICTS, "states": STATES, "evidences": EVIDENCES, "hows": HOWS},
        "glyphs": [heatmap.GLYPHS[verdict] for verdict in VERDICTS],
        "faults": [verdict.fault for verdict in VERDICTS],
        "axes": [
            {
                "name": one_line(axis, 40),
                "values": [value if isinstance(value, int) else one_line(value, 60) for value in values],
                "labels": [one_line(label(axis, value), 60) for value in values],
                "counts": axis in COUNTS,
                "releases": axis == RELEASES,
                "shows": len(values) > 1 or in_id(axis, values[0]),
            }
            for axis, values in axes.items()
        ],
        "archs": PRODUCTS,
        "rows": heatmap.ROWS,
        "columns": heatmap.COLUMNS,
    }


@dataclass
class _Table:
    """Things that are equal get the same number; `entries` are what the page is given of them."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    entries: list[Any] = field(default_factory=list)

    def number(self, key: Hashable, entry: Callable[[], Any]) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.entries)
            self.entries.append(entry())
        return self.numbers[key]


class _Packer:
    def __init__(self, axes: AxisValues, limit: int) -> None:
        self._positions = [(axis, {value: i for i, value in enumerate(values)}) for axis, values in axes.items()]
        self._limit = limit
        self._texts, self._batches, self._overflows = _Table(), _Table(), _Table()
        self._stories, self._facts = _Table(), _Table()
        self.was_cut = False

    def tables(self) -> dict[str, Any]:
        return {
            "texts": self._texts.entries,
            "batches": self._batches.entries,
            "overflows": self._overflows.entries,
            "stories": self._stories.entries,
            "facts": self._facts.entries,
        }

    def cell(self, row: CellResult) -> list[Any]:
        return [
            one_line(row.id, 400),
            [places[row.axes[axis]] for axis, places in self._positions],
            VERDICTS.index(row.verdict),
            STATES.index(row.state),
            -1 if row.state in NOT_OBTAINED else EVIDENCES.index(row.evidence),
            self._story(row),
            [_ms(case.duration_s) for case in row.cases],
            [self._overflow(found) for found in row.overflow],
            self._text(row.reason, row.id),
            self._text(row.repro, row.id),
            self._text(row.known, row.id),
            self._fact(row.environment),
            self._fact(row.resolved),
            _ms(row.duration_s),
            [STATES.index(state) for state in row.reruns],
            self._text(row.ended_at, row.id),
            self._text(row.expected, row.id),
            self._text(str(behind.of(row) or ""), row.id),
        ]

    def _story(self, row: CellResult) -> int:
        unjudged = {name for finding in findings(row) for name in finding.also}
        cases = tuple((*self._case(case, row.id), int(case.name in unjudged)) for case in row.cases)
        return self._stories.number(cases, lambda: cases)

    def _case(self, case: CaseResult, id_: str) -> tuple[int, int, int, tuple[int, ...], int]:
        overflows = tuple(self._overflow(found) for found in case.overflow)
        texts = [self._text(text, id_) for text in (case.name, case.message, raised(case.cause) if case.cause else "")]
        return texts[0], STATES.index(case.state), texts[1], overflows, texts[2]

    def _overflow(self, found: Overflow) -> int:
        batch = self._batches.number(found.batch, lambda: _runs(found.batch))
        required, allocated = (min(max(number, 0), MOST) for number in (found.required, found.allocated))
        entry = (self._text(found.buffer, ""), required, allocated, HOWS.index(found.how), batch)
        return self._overflows.number(entry, lambda: entry)

    def _fact(self, facts: Mapping[str, Any]) -> int:
        pairs = tuple((self._text(str(name), ""), self._text(str(value), "")) for name, value in facts.items())
        return self._facts.number(pairs, lambda: pairs)

    def _text(self, text: str, id_: str) -> int:
        before, found, after = text.partition(id_) if id_ else (text, "", "")
        if found:
            return self._texts.number((before, after), lambda: [self._shown(before), self._shown(after)])
        return self._texts.number(text, lambda: self._shown(text))

    def _shown(self, text: str) -> str:
        """Harmless and no longer than the limit: an error's start names it, its end explains it."""
        made = plain(text if len(text) <= 2 * self._limit else f"{text[: self._limit]} … {text[-self._limit :]}")
        if len(made) <= self._limit and len(text) <= 2 * self._limit:
            return made
        self.was_cut = True
        return f"{made[: self._limit // 2]} … {made[-self._limit // 2 :]}"


def _ms(seconds: float) -> int:
    return 0 if math.isnan(seconds) else round(min(max(seconds, 0), 1e9) * 1000)


def _runs(batch: Batch) -> list[Any]:
    requests = list(zip(batch.query_lens, batch.seq_lens, strict=False))
    runs = [[*each, len(list(same))] for each, same in groupby(requests)]
    return [max(len(batch.query_lens), len(batch.seq_lens)), runs[:MAX_RUNS]]
