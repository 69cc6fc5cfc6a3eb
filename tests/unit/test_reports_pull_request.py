"""The Markdown of a comparison stands in a pull request: it has all that it is judged by, and nothing of this disk."""

import hashlib
import itertools
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from runner import candidates, cli, matrix, results, select, session
from runner.compare import compare
from runner.expand import by_default
from runner.model import CaseResult, Cell, CellResult, Evidence, How, State, Verdict
from runner.reports import markdown as report
from runner.reports.pull_request import Setting, markdown
from runner.reports.text import public
from tests.unit.synthetic import INDPTR, MASK, cell, overflow, overflowed

DIGEST = "0123456789abcdef"
HERE = "/home/me/work/runs/20261201T000000Z-ab12"
RECORDED = {"candidate": f"patch {HERE}/candidates/fix.patch {DIGEST} over 0.32.0", "cases_digest": "fedcba9876543210"}
KS = (0, 1, 2, 3, 5, 7)


def side(vllm: str, of: Callable[[int], tuple[State, tuple[CaseResult, ...]]], **environment: str) -> list[CellResult]:
    """A cell for each k with the load solo, as `of` says, and one that a rule excludes; cases not given pass."""
    made = []
    for k in KS:
        state, cases = of(k)
        there = {case.name for case in cases}
        cases += tuple(CaseResult(name=name, state=State.PASS) for name in (INDPTR, MASK) if name not in there)
        row = cell(state, *cases, axes={"vllm": vllm, "spec_k": k, "load": "solo"})
        repro = f"runner repro --candidate fix={HERE}/candidates/fix.patch@0.32.0 {row.id}"
        made.append(replace(row, environment={**row.environment, **environment}, repro=repro))
    excluded = cell(State.UNSUPPORTED, axes={"vllm": vllm, "arch": "cpu", "load": "solo"}, reason="no GPU", cases=())
    return [*made, replace(excluded, environment=dict.fromkeys(excluded.environment, ""))]


def indptr(*, required: int, allocated: int) -> CaseResult:
    return overflowed(INDPTR, overflow(required=required, allocated=allocated))


SHORT = overflowed(MASK, overflow(How.SHORT, buffer="mask", required=8, allocated=4))
BEFORE = side(
    "0.32.0",
    lambda k: (
        State.OVERFLOW,
        (indptr(required=6 + k, allocated=2), SHORT) if k else (indptr(required=6, allocated=2),),
    ),
)
AFTER = side(
    "fix", lambda k: (State.OVERFLOW, (indptr(required=9, allocated=8),)) if k == 7 else (State.PASS, ()), **RECORDED
)
LOADS = matrix.load(Path(__file__).parents[2] / "matrix.yaml").loads


def shown(before: list[CellResult] = BEFORE, after: list[CellResult] = AFTER, **more: object) -> str:
    return markdown(compare(before, after), title="0.32.0 → fix", setting=Setting(loads=LOADS), **more)  # type: ignore[arg-type]


def part(text: str, name: str) -> str:
    return re.split(r"^### ", text.split(f"### {name}\n")[1], flags=re.MULTILINE)[0]


def test_it_says_what_was_judged_and_how() -> None:
    found = part(shown(), "What was judged, and how")
    assert "- before, `0.32.0`: vllm `0.32.0`, torch `2.13.0+cpu`\n" in found
    assert (
        f"- after, `fix`: patch `fix.patch` (SHA-256 begins with `{DIGEST}`) over vLLM `0.32.0`; vllm `0.32.0`" in found
    )
    assert "cases `fedcba9876543210`" in found
    assert "- 6 cells judged = 5 fixed + 1 changed; 1 judged on neither side" in found.replace(
        "1 changed + 5 fixed", "5 fixed + 1 changed"
    )
    assert "- nothing was shown on a GPU: 6 cells emulated (vLLM's own Python on a CPU" in found


def test_it_has_the_numbers_of_the_deployment() -> None:
    found = part(shown(), "Deployment")
    assert (
        "| load | sequences N | batched tokens T | length L | block size | heads, KV heads | head size | dtype |"
        in found
    )
    assert "| `solo` | 1 | 36,000 | 36,000 | 16 | 8, 2 | 128 | `bfloat16` |" in found
    assert "server" not in found, "only what was compared"
    assert "spec_k 0, 1, 2, 3, 5, 7; chunk 64" in found
    neutral = [[replace(one, axes={**one.axes, "kv_dtype": "auto"}) for one in rows] for rows in (BEFORE, AFTER)]
    assert "kv_dtype" not in part(shown(*neutral), "Deployment"), "an axis that is off says nothing"


def test_its_table_has_required_and_allocated_of_each_buffer_on_both_sides() -> None:
    found = part(shown(), "Before and after").splitlines()
    assert "| `paged_kv_indptr` | `solo` | 13 / 2 (raised), 6 cells | 9 / 8 (raised), 1 cell |" in found
    assert "| `mask` | `solo` | 8 / 4 (short), 5 cells | not seen: 1 cell with other trouble |" in found
    passing = side("fix", lambda k: (State.PASS, ()), **RECORDED)
    assert "| `mask` | `solo` | 8 / 4 (short), 5 cells | fits |" in part(shown(after=passing), "Before and after")
    assert "| `mask` | `solo` | fits | 8 / 4 (short), 5 cells |" in part(shown(passing, BEFORE), "Before and after")


def test_a_buffer_of_a_cell_that_was_not_judged_is_not_said_to_fit() -> None:
    lost = [replace(row, state=State.INFRA, verdict=Verdict.INFRA, cases=(), overflow=()) for row in AFTER]
    assert "### Before and after" not in shown(after=lost)


def test_what_is_still_open_is_told_before_what_is_fixed() -> None:
    text = shown()
    found = part(text, "What is still open")
    assert "- kernels on a GPU: 12 of 12 results were obtained without one" in found
    assert "- 1 cell not judged: `no GPU`" in found
    assert "changed" in found
    assert "fixed" not in found
    assert text.index("What is still open") < text.index("#### `fixed · 4 cells")
    on_gpu = [[replace(row, evidence=Evidence.DEVICE) for row in rows] for rows in (BEFORE, AFTER)]
    assert "kernels on a GPU" not in shown(*on_gpu)


def test_what_got_worse_is_open_and_comes_first() -> None:
    worse = side("fix", lambda k: (State.FAIL, (CaseResult(name="test_a", state=State.FAIL),)), **RECORDED)
    found = part(shown(AFTER, worse), "What is still open")
    assert found.index("regressed · ") < found.index("changed")


def test_the_exit_code_is_the_last_line() -> None:
    assert shown().endswith("\n**exit 0: nothing got worse**\n")
    assert shown(AFTER, BEFORE).endswith("\n**exit 1: something got worse**\n")


def test_nothing_in_it_is_of_this_disk() -> None:
    said = 'File "/home/me/checkout/vllm/v1/a.py", line 3 and /home/me/x.log'
    refused = [replace(row, state=State.REFUSED, verdict=Verdict.REFUSED, reason=said, cases=()) for row in AFTER]
    moved = {**RECORDED, "candidate": f"checkout /home/me/checkout {DIGEST} over 0.32.0"}
    texts = [
        shown(),
        shown(after=[replace(row, environment={**row.environment, **moved}) for row in refused]),
        markdown(compare(BEFORE, BEFORE), title=f"{HERE} → /home/me/other"),
    ]
    for text in texts:
        assert "/home" not in text
    assert 'File "vllm/v1/a.py", line 3 and x.log' in texts[1]
    assert f"checkout `checkout` (digest `{DIGEST}`)" in texts[1]


def test_the_report_of_a_candidates_run_is_public_too() -> None:
    text = report.render(AFTER, exit_code=1, title="a run")
    assert "/home" not in text
    assert f"- candidate `fix`: patch `fix.patch` (SHA-256 begins with `{DIGEST}`) over vLLM `0.32.0`" in text
    assert "runner repro --candidate fix=fix.patch@0.32.0 fix-flashinfer" in text


@pytest.mark.parametrize(
    ("text", "elsewhere"),
    [
        ("https://github.com/vllm-project/vllm/issues/1", "https://github.com/vllm-project/vllm/issues/1"),
        ("(/opt/vllm/lib/python3.11/site-packages/vllm/v1/a.py:3)", "(vllm/v1/a.py:3)"),
        ("~/trees/mine/vllm/v1/a.py", "vllm/v1/a.py"),
        ("--matrix /home/me/m.yaml", "--matrix m.yaml"),
        ("fix=/home/me/fix.patch@0.32.0", "fix=fix.patch@0.32.0"),
        ("required 3 / allocated 2, and/or vllm/v1/a.py", "required 3 / allocated 2, and/or vllm/v1/a.py"),
    ],
)
def test_what_is_public_has_no_folder_of_a_machine(text: str, elsewhere: str) -> None:
    assert public(text) == elsewhere


def commands(text: str) -> list[list[str]]:
    return [shlex.split(line[2:]) for line in part(text, "To repeat it").splitlines() if line.startswith("$ ")]


@pytest.fixture
def chart(in_small: Callable[..., Path]) -> matrix.Matrix:
    """The small matrix with a patch beside it."""
    path = in_small()
    Path("fix.patch").write_text("--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -1 +1 @@\n-one\n+1\n")
    return matrix.load(path)


def test_two_lines_repeat_it_elsewhere(chart: matrix.Matrix) -> None:
    """They are taken by the command line as they are, and select the cells that were compared."""
    asked = ["vllm=0.32.0,vllm=fix", "flashinfer", "sm90,sm100", "chunk=64"]
    joined = candidates.joined(chart, ["fix=fix.patch@0.32.0"])
    chosen = select.select(joined, filters=asked)
    recorded = {"candidate": str(joined.environments["fix"].candidate)}

    def row(one: Cell) -> CellResult:
        made = cell(State.PASS, axes=dict(one.axes))
        return replace(made, id=one.id, environment=recorded if one.axes["vllm"] == "fix" else made.environment)

    rows = [row(one) for one in chosen]
    sides = [[one for one in rows if one.axes["vllm"] == vllm] for vllm in ("0.32.0", "fix")]
    setting = Setting(taken=by_default(chart), options=["--seed", "7"])
    text = markdown(compare(*sides), title="a → b", setting=setting)
    run, again = commands(text)
    assert run[:5] == ["runner", "--candidate", "fix=fix.patch@0.32.0", "--filter", "vllm=0.32.0,vllm=fix"]
    assert run[-4:] == ["--evidence", "emulated", "--seed", "7"]
    assert again == ["runner", "compare", "0.32.0", "fix", "--in", "runs/latest", "--markdown"]
    filters = [word for option, word in itertools.pairwise(run) if option == "--filter"]
    assert {one.id for one in select.select(joined, filters=filters)} == {one.id for one in chosen}
    assert not [word for word in filters if word.startswith(("hybrid", "load"))], "what a run takes is not asked for"
    for words in (run[1:], again[1:]):
        typer.main.get_command(cli.app).make_context("runner", words)
    digest = hashlib.sha256(Path("fix.patch").read_bytes()).hexdigest()[:16]
    assert f"`fix.patch` is the patch whose `sha256sum` begins with `{digest}`" in text


def test_the_lines_for_another_axis_and_for_two_runs_of_the_same_cells() -> None:
    old = [replace(row, axes={**row.axes, "arch": "sm90"}) for row in BEFORE[:-1]]
    new = [replace(row, axes={**row.axes, "arch": "sm100"}) for row in BEFORE[:-1]]
    _, again = commands(markdown(compare(old, new, along="arch"), title="a → b"))
    assert again == ["runner", "compare", "sm90", "sm100", "--along", "arch", "--in", "runs/latest", "--markdown"]
    run, again = commands(markdown(compare(old, old), title="a → b"))
    assert run[-2:] == ["--out", "runs/again"]
    assert again == ["runner", "compare", "runs/before", "runs/again", "--markdown"]


def test_a_run_directory_says_the_rest(chart: matrix.Matrix, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    Path("run", session.MATRIX_COPY).write_text(Path("matrix.yaml").read_text())
    Path("run/results.json").write_text(results.to_json([*BEFORE, *AFTER]))
    assert cli.main(["compare", "0.32.0", "fix", "--in", "run", "--markdown"]) == 0
    text = capsys.readouterr().out
    assert "| `solo` | 1 | 36,000 | 36,000 | 16 | 8, 2 | 128 | `bfloat16` |" in text
    Path("run", session.MATRIX_COPY).write_text("of another version: [")
    assert cli.main(["compare", "0.32.0", "fix", "--in", "run", "--markdown"]) == 0
    assert "### Deployment" in capsys.readouterr().out


def many(state: State, vllm: str) -> list[CellResult]:
    """600 cells, each with trouble of its own: nothing can be said together."""
    made = []
    for chunk in range(100):
        for k in KS:
            name = f"test_{chunk}_{k}_" + "x" * 200
            case = CaseResult(name=name, state=state, message="")
            made.append(cell(state, case, axes={"vllm": vllm, "chunk": 64 * (chunk + 1), "spec_k": k}))
    return made


def test_it_is_short_enough_for_a_comment_and_says_what_it_left_out() -> None:
    old = [replace(row, axes={**row.axes, "vllm": "0.27.1"}) for row in many(State.PASS, "0.28.0")]
    text = markdown(compare(old, many(State.FAIL, "0.28.0")), title="a → b")
    assert 50_000 < len(text.encode()) < 65_536
    groups = text.count("\n#### ")
    (left, cells, worse) = re.findall(
        r"… and (\d+) groups left out to keep this short: (\d+) cells, of which (\d+) got worse", text
    )[0]
    assert int(left) == int(cells) == int(worse) == 600 - groups
    assert text.endswith("**exit 1: something got worse**\n"), "the end is never left out"
    assert len(commands(text)) == 2
