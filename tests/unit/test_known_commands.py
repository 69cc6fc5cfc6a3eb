"""`runner known ...` as a person meets it: diffs, notes, exit codes, and a file that is only touched when asked."""

import errno
import json
import re
import stat
import subprocess
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from runner import matrix, results, select
from runner.cli import main
from runner.known import deqp, overview, review
from runner.model import State, Verdict
from tests.unit import known_tables as tables
from tests.unit.synthetic import cell, overflow, overflowed
from tests.unit.test_known_changes import run_of

NEW = ["--issue", "https://example.org/new", "--because", "so it is"]
KNOWN = """\
known:
  - where: {vllm: "0.32.0", arch: sm90}   # by hand
    state: overflow
    issue: https://example.org/1
    because: counts requests
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(here: Path):
    """A matrix with known issues, and a run in which what `bad` names overflows."""

    def written(known: str, bad, **axes) -> None:
        (here / "matrix.yaml").write_text(tables.HEAD + known + tables.TAIL)
        chart = tables.read(tables.HEAD + known + tables.TAIL)
        (here / "run").mkdir(exist_ok=True)
        rows = run_of(chart, bad, **{"vllm": ("0.32.0",), **axes})
        (here / "run/results.json").write_text(results.to_json(rows))

    return written


def run(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["known", *words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_add_shows_a_diff_and_leaves_the_file_alone(here: Path, write, capsys) -> None:
    write("", lambda c: c["arch"] == "sm90" and c["spec_k"] > 0)
    before = (here / "matrix.yaml").read_bytes()
    code, out, err = run("add", "run", *NEW, capsys=capsys)
    assert code == 0
    assert out.splitlines()[:2] == ["--- a/matrix.yaml", "+++ b/matrix.yaml"]
    assert [line for line in out.splitlines() if line[0] == "+"][1:] == [
        "+",
        "+known:",
        '+  - where: {vllm: "0.32.0", arch: sm90, spec_k: [1, 3], kv_dtype: auto}',
        "+    state: overflow",
        "+    buffer: paged_kv_indptr",
        "+    how: raised",
        "+    issue: https://example.org/new",
        "+    because: so it is",
    ]
    assert err.splitlines() == [
        "known issues: 1 added",
        "the run by the new entries: 0 unexpected cells, and 16 before",
        "matrix.yaml: not written: give --write",
    ]
    assert (here / "matrix.yaml").read_bytes() == before


def test_the_diff_is_one_that_git_takes_and_makes_what_write_writes(here: Path, write, capsys) -> None:
    write(KNOWN, lambda c: c["arch"] == "sm100", kv_dtype=("auto", "fp8"))
    _, diff, _ = run("prune", "run", capsys=capsys)
    subprocess.run(["git", "init", "-q"], check=True, cwd=here)
    (here / "x.patch").write_text(diff)
    subprocess.run(["git", "apply", "x.patch"], check=True, cwd=here)
    applied = (here / "matrix.yaml").read_bytes()
    (here / "matrix.yaml").write_text(tables.HEAD + KNOWN + tables.TAIL)
    assert run("prune", "run", "--write", capsys=capsys)[0] == 0
    assert (here / "matrix.yaml").read_bytes() == applied
    assert b"known: []" in applied


def test_write_keeps_a_link_a_mode_and_a_byte_order_mark(here: Path, write, capsys) -> None:
    write("", lambda c: c["arch"] == "sm90")
    (here / "real.yaml").write_bytes(b"\xef\xbb\xbf" + (here / "matrix.yaml").read_bytes())
    (here / "real.yaml").chmod(0o664)
    (here / "matrix.yaml").unlink()
    (here / "matrix.yaml").symlink_to("real.yaml")
    code, _, err = run("add", "run", *NEW, "--owner", "me", "--until", "0.32.0", "--write", capsys=capsys)
    assert (code, err.splitlines()[-1]) == (0, "matrix.yaml: written")
    assert (here / "matrix.yaml").is_symlink()
    assert stat.S_IMODE((here / "real.yaml").stat().st_mode) == 0o664
    assert (here / "real.yaml").read_bytes().startswith(b"\xef\xbb\xbf# one of many")
    (entry,) = matrix.load(here / "matrix.yaml").known
    assert (entry.owner, entry.until) == ("me", "0.32.0")
    assert not list(here.glob(".matrix*")), "no half of a file is left"


def test_nothing_is_written_over_what_somebody_else_wrote_meanwhile(here: Path, write, capsys, monkeypatch) -> None:
    write("", lambda c: c["arch"] == "sm90")
    path = here / "matrix.yaml"
    diff = review.diff

    def slow(*words):
        path.write_text(path.read_text() + "# mine\n")
        return diff(*words)

    monkeypatch.setattr(review, "diff", slow)
    code, _, err = run("add", "run", *NEW, "--write", capsys=capsys)
    assert code == 2
    assert "matrix.yaml: has changed meanwhile: nothing was written, run the command again" in err
    assert path.read_text().endswith("# mine\n")


def test_a_disk_that_is_full_is_said_and_changes_nothing(here: Path, write, capsys, monkeypatch) -> None:
    write("", lambda c: c["arch"] == "sm90")
    before = (here / "matrix.yaml").read_bytes()

    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("runner.results.tempfile.mkstemp", full)
    code, _, err = run("add", "run", *NEW, "--write", capsys=capsys)
    assert code == 3
    assert "cannot be written (No space left on device): nothing was changed" in err
    assert (here / "matrix.yaml").read_bytes() == before


def test_the_matrix_that_is_shipped_is_not_written_unasked(here: Path, project: Path, write, capsys) -> None:
    write("", lambda c: c["arch"] == "sm90")
    (here / "matrix.yaml").unlink()
    before = (project / "matrix.yaml").read_bytes()
    code, _, err = run("add", "run", *NEW, "--write", capsys=capsys)
    assert code == 2
    assert "there is no matrix.yaml here" in err
    assert (project / "matrix.yaml").read_bytes() == before


def test_a_filter_takes_part_of_the_trouble(write, capsys) -> None:
    write("", lambda c: c["arch"] == "sm90")
    _, out, err = run("add", "run", *NEW, "--filter", "flash_attn,c64", capsys=capsys)
    assert (
        '+  - where: {vllm: "0.32.0", backend: flash_attn, arch: sm90, chunk: 64, kv_dtype: auto}' in out.splitlines()
    )
    assert "the run by the new entries: 0 unexpected cells, and 6 before" in err


def test_without_anything_to_add_it_says_so(write, capsys) -> None:
    write("", lambda c: False)
    assert run("add", "run", *NEW, capsys=capsys) == (0, "", "matrix.yaml: nothing to change\n")


def test_a_buffer_with_a_name_that_steers_a_terminal_is_told_and_not_written(here: Path, write, capsys) -> None:
    write("", lambda c: False)
    evil = overflowed("test_a", overflow(buffer="\x1b[2J: [x"))
    rows = [
        replace(row, state=State.OVERFLOW, cases=(evil,), overflow=evil.overflow) for row in results.read(here / "run")
    ]
    (here / "run/results.json").write_text(results.to_json(rows))
    before = (here / "matrix.yaml").read_bytes()
    code, out, err = run("add", "run", *NEW, "--write", capsys=capsys)
    assert (code, out) == (2, "")
    assert "with this change the matrix would not be taken, so nothing is written:" in err
    assert "the control character" in err
    assert "\x1b" not in err
    assert (here / "matrix.yaml").read_bytes() == before


def test_results_of_candidates_are_left_out_and_counted(here: Path, write, capsys) -> None:
    write("", lambda c: c["arch"] == "sm90")
    rows = results.read(here / "run")
    rows = tuple(replace(row, axes={**row.axes, "vllm": "fix"}) if row.state.bad else row for row in rows)
    (here / "run/results.json").write_text(results.to_json(rows))
    code, out, err = run("add", "run", *NEW, capsys=capsys)
    assert (code, out) == (0, "")
    assert "left out: 24 of 72 results, of no cell of the matrix, such as a candidate's" in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["--issue", "#1", "--because", "x"],
            2,
            "--issue must be a link such as https://github.com/owner/name/issues/1",
        ),
        (["--issue", "https://a/b\n", "--because", "x"], 2, "--issue must be a line"),
        (["--issue", "https://a/b\x1b", "--because", "x"], 2, r"--issue must be a line of text that can be printed"),
        (
            ["--issue", "https://a/b", "--because", " "],
            2,
            "--because must be a line of text that can be printed, not ' '",
        ),
        (["--issue", "https://a/b", "--because", "\x1b[2J"], 2, r"--because must be a line .*not '\\x1b\[2J'"),
        ([*NEW, "--owner", ""], 2, "--owner must be a line of text"),
        (
            [*NEW, "--until", "0.33.0"],
            2,
            "--until must be a date .* or a release of axis 'vllm', not '0.33.0', did you",
        ),
        ([*NEW, "--until", "2027-02-30"], 2, "--until must be a date such as 2027-01-31"),
        ([*NEW, "--any", "archs"], 2, "--any: unknown axis 'archs', did you mean 'arch'"),
        ([*NEW, "--filter", "sm90,k7"], 5, "unknown label 'k7'"),
        ([*NEW, "--filter", "0.31.0"], 5, "run: no result passes the filters"),
        ([*NEW, "--matrix", "none.yaml"], 2, "none.yaml: no such file"),
        ([], 2, "Missing option '--issue'"),
    ],
)
def test_what_cannot_be_obeyed_is_told(words: list[str], code: int, said: str, write, capsys) -> None:
    write("", lambda c: c["arch"] == "sm90")
    found, out, err = run("add", "run", *words, capsys=capsys)
    assert (found, out) == (code, "")
    assert re.search(said, " ".join(err.split()))
    assert "\x1b" not in err


def test_a_run_without_results_is_told(write, capsys) -> None:
    write("", lambda c: False)
    assert run("add", "nowhere", *NEW, capsys=capsys)[0] == 2
    Path("run/results.json").write_text("[]")
    code, _, err = run("prune", "run", capsys=capsys)
    assert (code, err) == (5, "run: has no results\n")


def test_prune_takes_out_what_matches_no_cell_any_more(here: Path, write, capsys) -> None:
    write("", lambda c: False)
    idle = KNOWN.replace("arch: sm90", "arch: cpu, backend: flashinfer")
    (here / "matrix.yaml").write_text(tables.HEAD + idle + tables.TAIL)
    assert main(["list"]) == 2, "a mistake of the matrix"
    capsys.readouterr()
    code, out, err = run("prune", "run", "--write", capsys=capsys)
    assert code == 0
    assert "known issue 1 (https://example.org/1) matches no cell: taken out" in err
    assert "+known: []" in out
    assert main(["list"]) == 0


def test_prune_takes_values_out_that_an_axis_does_not_have_any_more(here: Path, write, capsys) -> None:
    write("", lambda c: c["arch"] == "sm90")
    old = KNOWN.replace('"0.32.0"', '["0.10.0", "0.32.0"]').replace("arch: sm90", "arch: [sm90, sm70]")
    gone = KNOWN.replace("sm90", "sm70").replace("known:\n", "").replace("org/1", "org/2")
    (here / "matrix.yaml").write_text(tables.HEAD + old + gone + tables.TAIL)
    assert main(["list"]) == 2
    assert "axis 'vllm' has no value '0.10.0', in known issue 1" in capsys.readouterr().err
    code, _, err = run("prune", "run", "--write", capsys=capsys)
    assert code == 0
    assert err.splitlines()[:2] == [
        "known issue 1 (https://example.org/1) names values that no axis has: they are taken out, no cell is",
        "known issue 2 (https://example.org/2) matches no cell: taken out",
    ]
    assert (here / "matrix.yaml").read_text() == tables.HEAD + KNOWN + tables.TAIL


def test_what_is_no_value_at_all_stays_a_mistake(here: Path, write, capsys) -> None:
    write("", lambda c: False)
    (here / "matrix.yaml").write_text(tables.HEAD + KNOWN.replace("arch: sm90", 'spec_k: "3"') + tables.TAIL)
    code, _, err = run("prune", "run", capsys=capsys)
    assert code == 2
    assert "matrix.yaml:22:37: axis 'spec_k' takes whole numbers: write 3 without quotes" in err


def test_update_of_an_issue_that_is_not_there_names_the_nearest(write, capsys) -> None:
    write(KNOWN, lambda c: False)
    code, _, err = run("update", "run", "--issue", "https://example.org/2", capsys=capsys)
    assert code == 2
    assert "no known issue has the link 'https://example.org/2', did you mean 'https://example.org/1'?" in err


def test_update_gives_an_end_and_an_owner(here: Path, write, capsys) -> None:
    write(KNOWN, lambda c: c["arch"] == "sm90")
    words = ["update", "run", "--issue", "https://example.org/1", "--until", "2999-01-31", "--owner", "me"]
    code, out, _ = run(*words, "--write", capsys=capsys)
    assert [line for line in out.splitlines() if line[0] in "+-"][2:] == ["+    until: 2999-01-31", "+    owner: me"]
    assert code == 0
    (entry,) = matrix.load(here / "matrix.yaml").known
    assert (entry.owner, entry.until) == ("me", date(2999, 1, 31))


def test_the_list_has_what_ends_first_at_the_top(here: Path, capsys) -> None:
    ends = ["", "until: 2999-01-31", 'until: "0.31.0"', "until: 2020-01-31", "until: 2998-01-31", "until: 0.32.0"]
    entries = "".join(
        f"  - where: {{arch: sm90, spec_k: '>0'}}\n    state: crash\n    issue: https://example.org/{i}\n"
        f"    because: so\n    owner: {'me' if i else 'you'}\n" + (f"    {end}\n" if end else "")
        for i, end in enumerate(ends)
    )
    (here / "matrix.yaml").write_text(f"{tables.HEAD}known:\n{entries}{tables.TAIL}")
    code, out, err = run("list", capsys=capsys)
    assert code == 0
    assert [line.split()[1][-1] for line in out.splitlines() if "issue  " in line] == list("341250")
    assert "  4  crash · 64 cells, 32 by default" in out, "2 releases, 2 backends, 2 switches, k1 and k3, 2 chunks, kv"
    assert "     until    2020-01-31, EXPIRED" in out
    assert "     where    arch=sm90 spec_k>0" in out
    assert err == "6 known issues, 1 expired, 1 without an end\n"
    code, out, _ = run("list", "--json", capsys=capsys)
    rows = json.loads(out)
    assert [row["number"] for row in rows] == [4, 5, 2, 3, 6, 1]
    assert rows[0] == {
        "number": 4,
        "where": {"arch": ["sm90"], "spec_k": [1, 3]},
        "state": "crash",
        "buffer": [],
        "how": [],
        "flaky": False,
        "issue": "https://example.org/3",
        "because": "so",
        "owner": "me",
        "until": "2020-01-31",
        "expired": True,
        "cells": 64,
        "cells_by_default": 32,
    }


def test_an_entry_whose_last_release_is_before_what_a_run_takes_has_expired(here: Path) -> None:
    text = tables.HEAD.replace("defaults: {", 'defaults: {vllm: "0.32.0", ')
    entry = "  - where: {arch: sm90}\n    state: fail\n    issue: docs/a.md\n    because: so\n"
    chart = tables.read(f'{text}known:\n{entry}    until: "0.31.0"\n{entry}    until: "0.32.0"\n')
    assert [(line.number, line.expired) for line in overview.lines(chart, today=date(2026, 1, 1))] == [
        (1, True),
        (2, False),
    ]


def test_an_empty_list_says_so(here: Path, capsys) -> None:
    (here / "matrix.yaml").write_text(tables.HEAD)
    assert run("list", capsys=capsys) == (0, "", "0 known issues\n")
    assert run("list", "--json", capsys=capsys)[1] == "[]\n"


LIST = """\
# known since the beginning
*-sm90-*-k3-*,Fail   # a glob

0.32.0-flash_attn-sm100-hybrid_on-k0-c64-solo,crash
*-sm100-hybrid_off-k1-*,Flake
"""


def imported(text: str, *words: str, capsys) -> tuple[int, str, str]:
    Path("list.txt").write_text(text)
    return run("import", "list.txt", *NEW, *words, capsys=capsys)


def test_a_text_list_becomes_entries_of_exactly_the_cells_it_names(here: Path, capsys) -> None:
    (here / "matrix.yaml").write_text(tables.HEAD)
    code, _, err = imported(LIST, "--write", capsys=capsys)
    assert code == 0
    chart = matrix.load(here / "matrix.yaml")
    assert err.splitlines() == ["known issues: 3 added", "matrix.yaml: written"]
    cells = {cell.id: cell.axes for cell in select.select(chart)}
    named = {
        (State.FAIL, False): {i for i in cells if "-sm90-" in i and "-k3-" in i},
        (State.CRASH, False): {"0.32.0-flash_attn-sm100-hybrid_on-k0-c64-solo"},
        (State.FAIL, True): {i for i in cells if "-sm100-hybrid_off-k1-" in i},
    }
    assert [len(ids) for ids in named.values()] == [16, 1, 8]
    for entry in chart.known:
        found = {i for i, axes in cells.items() if entry.selector.matches(axes)}
        assert found == named.pop((entry.state, entry.flaky))
        assert not any(entry.selector.matches({**axes, "kv_dtype": "fp8"}) for axes in cells.values())
    assert not named
    code, out, err = imported(LIST, capsys=capsys)
    assert (code, out) == (0, ""), "a second time there is nothing to import"
    assert err.splitlines()[0] == "left alone: 25 cells known so already"


def test_a_list_without_states_has_the_state_that_one_names(here: Path, capsys) -> None:
    (here / "matrix.yaml").write_text(tables.HEAD)
    assert imported("*-sm90-*\n", "--state", "Timeout", "--flaky", "--write", capsys=capsys)[0] == 0
    (entry,) = matrix.load(here / "matrix.yaml").known
    assert (entry.state, entry.flaky) == (State.TIMEOUT, True)


def test_all_mistakes_of_a_list_are_told_with_their_lines(here: Path, capsys) -> None:
    (here / "matrix.yaml").write_text(tables.HEAD)
    code, out, err = imported("*-sm90-*,Fial\n\n,Fail\n*,a,Fail\n*-sm90-*,Skip\n*-sm90-*,\n", capsys=capsys)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "list.txt:1: unknown state 'Fial', did you mean 'fail'?",
        "list.txt:3: ',Fail' is not one glob and one state: write it as *-sm90-*,Fail",
        "list.txt:4: '*,a,Fail' is not one glob and one state: write it as *-sm90-*,Fail",
        "list.txt:5: unknown state 'Skip'; there is Fail, Crash, Timeout, Overflow, Oom, Flake",
        "list.txt:6: unknown state ''; there is Fail, Crash, Timeout, Overflow, Oom, Flake",
    ]


def test_globs_that_match_nothing_are_told_with_their_lines(here: Path, capsys) -> None:
    (here / "matrix.yaml").write_text(tables.HEAD)
    code, _, err = imported("*-sm90-*\nsm90-*,Fail\nsm91,Fail\n*-flashinfer-cpu-*,Fail\n", capsys=capsys)
    assert code == 2
    assert err.splitlines() == [
        "list.txt:2: no cell matches 'sm90-*': a glob is matched against whole ids, try '*sm90-*'",
        "list.txt:3: unknown label 'sm91', did you mean 'sm90' or 'sm100'? (`runner list` prints all)",
        "list.txt:4: rules exclude all that '*-flashinfer-cpu-*' matches",
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has no line: nothing to import"),
        (b"# nothing\n\n", "has no line"),
        (b"\xff\xfe", "not UTF-8"),
        (b"*\n" * (1 << 20), "larger than 1 MiB"),
        (None, r"cannot be read \(No such file or directory\)"),
    ],
)
def test_a_file_that_is_no_list_is_told(content: bytes | None, said: str, here: Path) -> None:
    if content is not None:
        (here / "list.txt").write_bytes(content)
    with pytest.raises(deqp.UsageError, match=said):
        deqp.read(here / "list.txt", otherwise=State.FAIL)


def test_an_unknown_state_on_the_command_line_is_told(here: Path, capsys) -> None:
    (here / "matrix.yaml").write_text(tables.HEAD)
    code, _, err = imported("*\n", "--state", "skip", capsys=capsys)
    assert (code, err) == (2, "--state: unknown state 'skip'; there is crash, fail, oom, overflow, timeout\n")


def test_an_expired_entry_is_no_reason_for_a_verdict_but_for_a_line_in_the_reports() -> None:
    from runner.reports import summary

    rows = [
        cell(State.FAIL, id="a", expired="https://a/1 https://a/2"),
        cell(State.PASS, id="b", expired="https://a/1"),
        cell(State.PASS, id="c", verdict=Verdict.PASS),
    ]
    assert summary.expired_lines(rows) == [
        "expired: https://a/1: 2 cells it spoke of, 1 bad and 1 passing: decide anew (`runner known update`)",
        "expired: https://a/2: 1 cell it spoke of, 1 bad and 0 passing: decide anew (`runner known update`)",
    ]
