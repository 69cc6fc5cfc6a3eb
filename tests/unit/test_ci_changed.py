"""A pull request that changes documentation alone costs no cells, and its check says so; anything else costs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runner import results
from runner.ci import annotations, changed, gate, gather, page
from runner.ci.gather import Asker, Gathered
from runner.cli import main
from tests.commits import commit, git

BASE = {"docs/a.md": "a typoo", "README.md": "x", "runner/x.py": "1\n" * 50, "matrix.yaml": "y"}


def merged(folder: Path, change: Callable[[Path], None], *, onto: Callable[[Path], None] = lambda _: None) -> Path:
    """A test merge commit as GitHub makes one: its first parent is the branch, its second what was changed."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch", "main")
    for name, text in BASE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    commit(folder)
    git(folder, "checkout", "--quiet", "-b", "topic")
    change(folder)
    commit(folder)
    git(folder, "checkout", "--quiet", "main")
    onto(folder)
    commit(folder)
    git(folder, "merge", "--quiet", "--no-ff", "--no-edit", "topic")
    return folder


def writes(**files: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for name, text in files.items():
            path = folder / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return change


def moves(old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / new).parent.mkdir(parents=True, exist_ok=True)
        (folder / old).rename(folder / new)

    return change


@pytest.mark.parametrize(
    ("path", "free"),
    [
        ("README.md", True), ("CHANGELOG.md", True), ("LICENSE", True), ("docs/ray.md", True),
        ("docs/candidates/x.patch", True), ("docs/matrix.schema.json", True),
        ("docs", False), ("docsx/a.md", False), ("x/docs/a.md", False), ("cases/README.md", False),
        ("plugin/README.md", False), ("matrix.yaml", False), ("runner/cli.py", False), ("pyproject.toml", False),
        (".github/workflows/a.md", False), (".github/pip-index", False), ("tests/x.py", False), ("new", False),
        ("LICENSE.py", False), ("cases/LICENSE", False), ("README.MD", False),
    ],
)  # fmt: skip
def test_what_costs_nothing_is_listed_and_all_else_costs(path: str, free: bool) -> None:
    assert changed.is_free(path) is free


@pytest.mark.parametrize(
    ("change", "free"),
    [
        (writes(docs__a="a typo", **{"README.md": "z"}), True),
        (moves("docs/a.md", "docs/b.md"), True),
        (writes(**{"docs__a.md": "a typo", "matrix.yaml": "z"}), False),
        (moves("runner/x.py", "docs/x.py"), False),  # a file that is gone counts
        (moves("docs/a.md", "cases/a.md"), False),  # and so does its new name
        (writes(**{"docs__é\n.md": "a"}), True),  # git would quote it
        (lambda _: None, False),  # nothing changed: nobody knows why it runs
    ],
)
def test_of_a_merge_both_names_of_a_file_count(tmp_path: Path, change: Callable[[Path], None], free: bool) -> None:
    told = changed.only_docs(merged(tmp_path / "a", change, onto=writes(**{"runner__x.py": "the branch went on"})))
    assert bool(told) is free
    assert not free or told.startswith("only documentation changed, on which no cell depends: ")
    assert "\n" not in told


def test_a_checkout_of_one_commit_cannot_tell(tmp_path: Path) -> None:
    """Which is what actions/checkout makes by default; two commits are enough."""
    origin = merged(tmp_path / "a", writes(**{"docs__a.md": "a typo"}))
    for depth, told in ((1, ""), (2, "only documentation changed, on which no cell depends: docs/a.md")):
        place = tmp_path / f"depth{depth}"
        place.mkdir()
        git(place, "init", "--quiet")
        git(place, "fetch", "--quiet", f"--depth={depth}", f"file://{origin}", "HEAD")
        git(place, "checkout", "--quiet", "FETCH_HEAD")
        assert changed.only_docs(place) == told
    assert changed.only_docs(tmp_path) == "", "no checkout at all"
    git(origin, "checkout", "--quiet", "main^1")
    assert changed.only_docs(origin) == "", "no merge"


def test_the_plan_has_no_job_and_the_gate_is_green_and_says_why(
    in_small: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    for name in ("GITHUB_TOKEN", "GITHUB_RUN_ID", "GITHUB_STEP_SUMMARY", "NEEDS", "PLAN", "MACHINES", "TIER"):
        monkeypatch.delenv(name, raising=False)
    outputs = tmp_path / "outputs"
    monkeypatch.setenv("GITHUB_OUTPUT", str(outputs))
    in_small()
    why = "only documentation changed, on which no cell depends: docs/`@x`.md"
    monkeypatch.setattr(changed, "only_docs", lambda _: why)
    monkeypatch.setenv("UNLESS_DOCS", "true")
    assert main(["ci", "plan", "--tier", "quick"]) == 0
    assert outputs.read_text() == 'hosted={"include": []}\ndevice={"include": []}\ndevice_names=\n'
    assert main(["ci", "gather"]) == 0
    assert main(["ci", "gate"]) == 0
    assert f"no cell was judged: {why}" in capsys.readouterr().out
    assert main(["ci", "annotations"]) == 0
    assert "::notice title=no cell was judged::" in capsys.readouterr().out
    assert main(["ci", "summary"]) == 0
    assert f"- ``no cell was judged: {why}``" in capsys.readouterr().out

    monkeypatch.setenv("UNLESS_DOCS", "false")
    assert main(["ci", "plan", "--tier", "quick"]) == 0
    assert '"name": "hosted"' in outputs.read_text().splitlines()[3]


def test_a_plan_without_jobs_that_does_not_say_why_is_red(tmp_path: Path) -> None:
    found = gather.gather((), tmp_path / "runs", results.read, Asker())
    assert gate.code(found, {}) == 3
    assert "the plan has no job, and does not say why" in gate.lines(found, {})[0]
    assert page.render(found, {}).count("does not say why") == 1
    assert "does not say why" in annotations.annotations(found, {})[0]
    red = gather.gather((), tmp_path / "runs", results.read, Asker(), required=True, nothing="only documentation")
    assert gate.code(red, {}) == 3, "evidence that is required is missing all the same"
    cancelled = gate.needs('{"wait": {"result": "cancelled"}}')
    assert gate.code(Gathered(came=(), nothing="only documentation"), cancelled) == 3
