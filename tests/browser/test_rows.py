"""The rows that the page draws are those of the definition, as cases/reference.py has it."""

import random

import numpy as np
from playwright.sync_api import Page

from cases import reference
from cases.patterns import Chunked
from runner.reports.html.page import _HERE

ROWS = """([batches]) => batches.map(([runs, chunk]) => {
  const all = [];
  for (let i = 0; i < totalRows(runs, chunk); i += 1) all.push(rowAt(runs, chunk, i));
  return all.map((row) => [row.request, row.chunk * chunk, row.to - row.from, row.to]);
})"""


def by_definition(runs: list[list[int]], chunk: int) -> list[list[int]]:
    """Of each row its request, the first position of its chunk, its query tokens and its keys."""
    query_lens = np.repeat([query for query, _, _ in runs], [times for *_, times in runs])
    seq_lens = np.repeat([seq for _, seq, _ in runs], [times for *_, times in runs])
    rows = reference.rows(query_lens, seq_lens, Chunked(chunk))
    return np.stack([rows.request, rows.first, rows.query_lens, rows.key_lens], axis=1).tolist()


def test_rows_are_those_of_the_definition(page: Page) -> None:
    draw = random.Random(7)
    batches = []
    for _ in range(500):
        runs = []
        for _ in range(draw.randrange(1, 5)):
            seq = draw.randrange(1, 400)
            runs.append([draw.randrange(1, seq + 1), seq, draw.randrange(1, 4)])
        batches.append([runs, draw.choice([1, 2, 3, 8, 64, 100])])
    page.add_script_tag(content=(_HERE / "js" / "rows.js").read_text())
    assert page.evaluate(ROWS, [batches]) == [by_definition(*batch) for batch in batches]


def test_millions_of_rows_are_counted_and_not_built(page: Page) -> None:
    page.add_script_tag(content=(_HERE / "js" / "rows.js").read_text())
    # One request, 10^9 tokens from position 0, chunks of 1: a row for each token, the last at position 10^9 - 1.
    assert page.evaluate("totalRows([[1e9, 1e9, 1]], 1)") == 10**9
    assert page.evaluate("rowAt([[1e9, 1e9, 1]], 1, 1e9 - 1).chunk") == 10**9 - 1


def test_what_is_no_batch_is_told_from_one(page: Page) -> None:
    page.add_script_tag(content=(_HERE / "js" / "rows.js").read_text())
    wrong = [[[[0, 5, 1]], 64], [[[6, 5, 1]], 64], [[[-1, 5, 1]], 64], [[], 64], [[[1, 5, 1]], 0], [[[1, 5, 1]], "x"]]
    assert page.evaluate("(wrong) => wrong.map(([runs, chunk]) => isBatch(runs, chunk))", wrong) == [False] * 6
    assert page.evaluate("isBatch([[5, 5, 1]], 64)")
