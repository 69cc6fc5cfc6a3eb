"""Changes of known issues are exact: random entries against random runs, every cell of the matrix looked at.

A cell that the run did not see, or in which the trouble still is, keeps all that is known of it; where it is over,
nothing is left.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from random import Random

import pytest

from runner.known import narrowing, widening, writing
from runner.known.entries import Change
from runner.matrix import KnownIssue, Matrix
from runner.model import CellResult, State
from tests.unit import known_tables as tables
from tests.unit.test_known_changes import TODAY

TABLES = range(1000, 1200)


@cache
def made(seed: int) -> tuple[str, Matrix, tuple[CellResult, ...]]:
    """Known issues, and what a run of a part of the matrix says: of some values, and of those not of every cell."""
    random = Random(seed)
    text = tables.text_of(tables.issues(random, tables.read(tables.text_of([]))))
    chart = tables.read(text)
    rows = tables.table(random, chart)
    if random.random() < 0.5:
        only = tables.region(random, chart)
        rows = [row for row in rows if only.matches(row.axes)]
    if random.random() < 0.3:
        rows = [row for row in rows if random.random() < 0.9]
    if random.random() < 0.4:
        roomy = {"bounds": {tables.BUFFERS[0]: [17, 17]}}
        rows = [replace(row, resolved=roomy) if random.random() < 0.3 else row for row in rows]
    return text, chart, tuple(rows)


def cells(chart: Matrix) -> Iterator[dict]:
    for values in product(*chart.axes.values()):
        of_cell = dict(zip(chart.axes, values, strict=True))
        if not any(rule.selector.matches(of_cell) for rule in chart.rules):
            yield of_cell


def said(known: tuple[KnownIssue, ...], of_cell: dict) -> set[tuple]:
    """What is known of a cell, each buffer by itself."""
    return {
        (one.issue, one.state, buffer, one.how, one.flaky)
        for one in known
        if one.selector.matches(of_cell)
        for buffer in one.buffer or ("",)
    }


def over(words: tuple, row: CellResult) -> bool:
    """Whether a row shows that what is said of its cell is not so; written without the code under test."""
    _, state, buffer, how, flaky = words
    if flaky or (state is State.OVERFLOW and _cannot(buffer, row)):
        return False
    if row.state is State.PASS:
        return True
    here = any(one.buffer == buffer and (not how or one.how in how) for one in row.overflow)
    return row.state is state is State.OVERFLOW and bool(buffer) and not here


def _cannot(buffer: str, row: CellResult) -> bool:
    """Whether the load of a cell lets no overflow happen: of this buffer, or of the only one that has a bound."""
    return "bounds" in row.resolved and buffer in ("", tables.BUFFERS[0])


def carried_out(text: str, change: Change) -> Matrix:
    return tables.read(writing.rewritten(text, change, tables.read(text)))


def by_cell(rows: Iterable[CellResult]) -> dict[tuple, CellResult]:
    return {tuple(row.axes.items()): row for row in rows}


@pytest.mark.parametrize("seed", TABLES)
def test_prune_takes_out_exactly_the_cells_in_which_it_is_over(seed: int) -> None:
    text, chart, rows = made(seed)
    pruned, seen = carried_out(text, narrowing.prune(rows, chart, today=TODAY)), by_cell(rows)
    for of_cell in cells(chart):
        before, after = said(chart.known, of_cell), said(pruned.known, of_cell)
        row = seen.get(tuple(of_cell.items()))
        assert after == {words for words in before if row is None or not over(words, row)}, of_cell


@pytest.mark.parametrize("seed", TABLES)
def test_update_changes_nothing_of_cells_that_were_not_seen(seed: int) -> None:
    text, chart, rows = made(seed)
    for issue in {entry.issue for entry in chart.known}:
        updated, seen = carried_out(text, widening.update(rows, chart, issue, today=TODAY)), by_cell(rows)
        for of_cell in cells(chart):
            before, after = said(chart.known, of_cell), said(updated.known, of_cell)
            row = seen.get(tuple(of_cell.items()))
            if row is None:
                assert after == before, of_cell
                continue
            assert {words for words in before if words[0] != issue} == {words for words in after if words[0] != issue}
            assert {words for words in before if not over(words, row)} <= after, of_cell
            assert not any(over(words, row) for words in after if words[0] == issue), of_cell


def test_the_tables_have_what_makes_it_hard() -> None:
    """Unseen cells that are known, cells where it is over, cells where it is not, and entries that name buffers."""
    found = dict.fromkeys(("unseen", "over", "still", "buffers", "cannot"), 0)
    for seed in TABLES:
        _, chart, rows = made(seed)
        seen = by_cell(rows)
        for of_cell in cells(chart):
            row = seen.get(tuple(of_cell.items()))
            for words in said(chart.known, of_cell):
                found["unseen"] += row is None
                found["over"] += row is not None and over(words, row)
                found["still"] += row is not None and row.state is words[1] and not over(words, row)
                found["buffers"] += bool(words[2])
                found["cannot"] += row is not None and words[1] is State.OVERFLOW and _cannot(words[2], row)
    assert min(found.values()) > 300, found
