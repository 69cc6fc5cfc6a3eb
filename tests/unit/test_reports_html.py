"""The page as a file: what is in it, what is allowed to run in it, how large it is. tests/browser looks at it."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from runner import results
from runner.model import Batch, CaseResult, Evidence, How, Overflow, State, Verdict
from runner.reports import files, html, patterns
from runner.reports.html import packing, trend, words
from tests.unit import synthetic

NAMES = ("0.32.0-flashinfer-sm80-hybrid_on-k0-c64-solo", "0.32.0-flashinfer-sm80-hybrid_on-k1-c64-solo")


def data(text: str) -> dict:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def two() -> list:
    return [
        synthetic.cell(State.OVERFLOW, synthetic.overflowed(), axes={"spec_k": k}, repro=f"runner repro {name}")
        for k, name in enumerate(NAMES)
    ]


def test_repeated_texts_stories_and_facts_are_there_once() -> None:
    found = data(html.render(two(), exit_code=1))
    assert [cell[0] for cell in found["cells"]] == list(NAMES)
    assert len(found["stories"]) == len(found["overflows"]) == len(found["batches"]) == 1
    assert len(found["facts"]) == 2  # an environment and what was resolved
    assert found["texts"].count(synthetic.RAISED) == 1
    first, second = (cell[9] for cell in found["cells"])
    assert first == second  # the same command, but for the id
    assert found["texts"][first] == ["runner repro ", ""]


def test_what_was_packed_is_what_the_row_says() -> None:
    batch = Batch(query_lens=(2, 2, 5), seq_lens=(65, 65, 5))
    over = Overflow(buffer="draft_mask", required=9, allocated=4, how=How.SHORT, batch=batch)
    row = synthetic.cell(
        State.OVERFLOW,
        synthetic.overflowed("test_x", over, message="why", cause=synthetic.cause()),
        reruns=(State.PASS,),
        duration_s=1.2344,
    )
    found = data(html.render([row], exit_code=1))
    (cell,) = found["cells"]
    names, texts = found["names"], found["texts"]
    assert names["verdicts"][cell[2]] == "overflow"
    assert names["states"][cell[3]] == "overflow"
    assert names["evidences"][cell[4]] == "emulated"
    ((name, state, message, overflows, raised, after),) = found["stories"][cell[5]]
    assert (texts[name], names["states"][state], texts[message]) == ("test_x", "overflow", "why")
    where = "AssertionError at vllm/v1/attention/backends/flashinfer.py:812 in build: no room for 5 rows"
    assert (texts[raised], after) == (where, 0)
    buffer, required, allocated, how, number = found["overflows"][overflows[0]]
    assert (texts[buffer], required, allocated, names["hows"][how]) == ("draft_mask", 9, 4, "short")
    assert found["batches"][number] == [3, [[2, 65, 2], [5, 5, 1]]]
    assert [names["states"][state] for state in cell[14]] == ["pass"]
    assert cell[13] == 1234


def test_a_cell_that_vllm_never_saw_has_no_evidence() -> None:
    found = data(html.render([synthetic.cell(State.INFRA)], exit_code=3))
    assert found["cells"][0][4] == -1


def test_no_text_can_end_the_data() -> None:
    text = html.render([synthetic.cell(State.FAIL, reason="</script><!--<script>&\u2028")], exit_code=1)
    body = text.split('id="data">')[1].split("</script>")[0]
    assert not set("<>&\u2028") & set(body)
    assert body.isascii()
    assert "</script><!--<script>&\\u2028" in data(text)["texts"]


def test_only_this_style_and_this_script_may_run() -> None:
    text = html.render(two(), exit_code=1)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    allowed = dict(part.strip().split(" ", 1) for part in policy.replace("&#39;", "'").split(";"))
    assert allowed["default-src"] == "'none'"
    for kind, content in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert allowed[kind] == f"'sha256-{digest}'"
    assert not re.search(r"(?:src|href)=\"(?!https://github.com/)", text)
    assert not re.search(
        r"url\(|@import|fetch\(|XMLHttp|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text
    )


def test_the_same_rows_make_the_same_bytes() -> None:
    rows = list(synthetic.results())
    assert html.render(rows, exit_code=1) == html.render(rows, exit_code=1)


def test_a_page_stays_small_whatever_the_messages() -> None:
    rows = [
        synthetic.cell(
            State.FAIL,
            CaseResult(name="test_x", state=State.FAIL, message=f"{number} " + "é<" * 40_000),
            axes={"spec_k": number},
        )
        for number in range(600)
    ]
    text = html.render(rows, exit_code=1)
    assert len(text) < 6_000_000
    limit = int(re.search(r"Texts here are cut to ([\d,]+) characters", text)[1].replace(",", ""))
    assert limit in packing.LIMITS
    assert max(len(one) for one in data(text)["texts"] if isinstance(one, str)) <= limit + 3


def test_nothing_is_said_to_be_cut_where_nothing_was() -> None:
    assert "are cut to" not in html.render(two(), exit_code=1)


def test_a_long_batch_is_cut_and_says_how_long_it_was() -> None:
    lens = tuple(range(1, 2001))
    over = Overflow(buffer="b", required=9, allocated=4, how=How.SHORT, batch=Batch(query_lens=lens, seq_lens=lens))
    found = data(html.render([synthetic.cell(State.OVERFLOW, synthetic.overflowed("x", over))], exit_code=1))
    requests, runs = found["batches"][0]
    assert requests == 2000
    assert len(runs) == packing.MAX_RUNS


def test_axes_that_are_numbers_stand_by_size() -> None:
    rows = [synthetic.cell(axes={"spec_k": k}) for k in (7, 0, 3)]
    (axis,) = [axis for axis in data(html.render(rows, exit_code=0))["axes"] if axis["name"] == "spec_k"]
    assert axis["values"] == [0, 3, 7]


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([], "No cell was planned."),
        (
            [synthetic.cell(), synthetic.cell(State.OVERFLOW, axes={"spec_k": 1}, verdict=Verdict.XFAIL)],
            "Nothing unexpected: 1 passed, 1 fail as known issues say (--no-known judges without them). "
            "No GPU was used (2 emulated).",
        ),
        (
            [synthetic.cell(State.FAIL), synthetic.cell(State.INFRA, axes={"spec_k": 1})],
            "1 cell is not as expected: 1 fail; all of flashinfer. 1 cell could not be judged: 1 infra. "
            "No GPU was used (1 emulated).",
        ),
        (
            [synthetic.cell(State.INFRA)],
            "Nothing wrong was seen, but 1 cell could not be judged: 1 infra. No cell ran: there is no evidence.",
        ),
        (
            [synthetic.cell(evidence=Evidence.DEVICE)],
            "Nothing unexpected: 1 passed. Everything that ran did so on a GPU.",
        ),
        (
            [synthetic.cell(evidence=Evidence.DEVICE), synthetic.cell(axes={"spec_k": 1})],
            "Nothing unexpected: 2 passed. Of 2 results 1 was obtained on a GPU.",
        ),
    ],
)
def test_the_first_line_says_what_is_bad_and_what_is_proven(rows: list, line: str) -> None:
    assert words.verdict_line(rows) == line


def test_headroom_is_of_the_cell_that_is_short_of_the_largest_share() -> None:
    def row(k: int, required: int, allocated: int):
        over = synthetic.overflow(required=required, allocated=allocated)
        return synthetic.cell(State.OVERFLOW, synthetic.overflowed("x", over), axes={"spec_k": k})

    (found,) = words.headroom([row(0, 3, 2), row(1, 258, 257), row(2, 6, 4)])
    # 3 of 2 and 6 of 4 are the same share, one and a half; of these the larger is told
    assert (found.required, found.allocated, found.worst) == (6, 4, 1.5)
    assert found.shares == [(258 / 257, 1), (1.5, 2)]
    assert found.cells == [0, 1, 2]


def test_a_buffer_of_nothing_is_no_division_by_zero() -> None:
    row = synthetic.cell(State.OVERFLOW, synthetic.overflowed("x", synthetic.overflow(required=2, allocated=0)))
    assert words.headroom([row])[0].worst == 2
    assert "2 of 0" in html.render([row], exit_code=1)


def run(folder: Path, name: str, rows: list) -> Path:
    (folder / name).mkdir()
    (folder / name / results.NAME).write_text(results.to_json(rows))
    return folder / name


def test_runs_beside_with_the_same_cells_are_the_history(tmp_path: Path) -> None:
    good, bad = synthetic.cell(), synthetic.cell(State.FAIL)
    other = synthetic.cell(axes={"spec_k": 1})
    run(tmp_path, "20260101T000000Z-aaaa", [bad])
    run(tmp_path, "20260102T000000Z-aaaa", [good, other])  # other cells
    run(tmp_path, "20260103T000000Z-aaaa", [good])
    run(tmp_path, "20260109T000000Z-aaaa", [good])  # later
    run(tmp_path, "mine", [good])
    (run(tmp_path, "20260104T000000Z-aaaa", []) / results.NAME).write_text("{ not json")
    found = trend.neighbours(run(tmp_path, "20260105T000000Z-aaaa", [good]), [good])
    assert [(one.name, dict(one.counts)) for one in found] == [
        ("20260101T000000Z-aaaa", {Verdict.FAIL: 1}),
        ("20260103T000000Z-aaaa", {Verdict.PASS: 1}),
    ]


def test_a_run_beside_an_earlier_one_draws_its_line(tmp_path: Path) -> None:
    run(tmp_path, "20260101T000000Z-aaaa", [synthetic.cell(State.FAIL)])
    files.write(tmp_path / "20260102T000000Z-aaaa", [synthetic.cell()], exit_code=0, title="the second")
    text = (tmp_path / "20260102T000000Z-aaaa" / "report.html").read_text()
    assert 'aria-label="over 2 runs: 0, 1"' in text  # pass
    assert 'aria-label="over 2 runs: 1, 0"' in text  # fail
    assert "the same cells in 1 earlier run, since 20260101T000000Z-aaaa" in text


def test_a_directory_with_a_name_of_its_own_has_no_neighbours(tmp_path: Path) -> None:
    run(tmp_path, "20260101T000000Z-aaaa", [synthetic.cell()])
    assert trend.neighbours(run(tmp_path, "mine", []), [synthetic.cell()]) == ()


def test_a_verdict_that_is_gone_has_a_line_down_to_nothing() -> None:
    lines = trend.lines(
        [synthetic.cell()], [trend.Earlier("a", {Verdict.FAIL: 4}), trend.Earlier("b", {Verdict.FAIL: 2})]
    )
    assert lines[Verdict.FAIL].numbers == (4, 2, 0)
    assert lines[Verdict.PASS].numbers == (0, 0, 1)
    # three points over 72 - 2 * 2; the largest at height 2, the smallest at 14
    assert lines[Verdict.FAIL].points == "2.0,2.0 36.0,8.0 70.0,14.0"


def test_a_run_writes_the_page(tmp_path: Path) -> None:
    files.write(tmp_path, two(), exit_code=1, title="a run")
    text = (tmp_path / "report.html").read_text()
    assert [cell[0] for cell in data(text)["cells"]] == list(NAMES)
    assert "<title>attnmatrix a run</title>" in text


def test_groups_know_their_cells() -> None:
    rows = list(synthetic.results())
    shown, note = words.shown_groups(rows, patterns.domain(rows))
    assert not note
    for group in shown:
        assert f"{len(group.cells):,} cell" in group.title
        assert all(rows[number].state is State.OVERFLOW for number in group.cells)


def test_groups_beyond_the_most_are_counted() -> None:
    rows = [
        synthetic.cell(State.FAIL, CaseResult(name=f"test_{n}", state=State.FAIL), axes={"spec_k": n})
        for n in range(words.MOST_GROUPS + 3)
    ]
    shown, note = words.shown_groups(rows, patterns.domain(rows))
    assert len(shown) == words.MOST_GROUPS
    assert note == "… and 3 groups more, see report.md"
    assert len(html.render([replace(row) for row in rows], exit_code=1)) < 6_000_000
