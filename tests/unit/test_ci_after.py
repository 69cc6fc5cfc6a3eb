"""What follows a run: the one comment on its pull request, and another try where a machine was the trouble."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from runner import results
from runner.ci import gather, telling
from runner.ci.again import machine_troubles
from runner.ci.api import Api
from runner.ci.gather import Came, Gathered
from runner.ci.jobs import Job, Side
from runner.cli import main
from runner.errors import UsageError
from runner.model import CellResult, Evidence, State, Verdict
from tests.answering import answering
from tests.unit.hostile import TEXTS, places, put
from tests.unit.synthetic import cell, known
from tests.unit.synthetic import results as all_results

HEAD, OTHER = "b" * 40, "c" * 40
MARK = "<!-- attnmatrix: how matrix-pr ended -->"
MOST = 65_536
"""Characters of a comment. Source: GitHub's answer to a longer one, "body is too long (maximum is 65536 characters)".
"""
BOT = {"login": "github-actions[bot]", "type": "Bot"}


def gathered(*rows: CellResult, side: Side = Side.HOSTED, **came: Any) -> Gathered:
    runs_on = ("self-hosted", "gpu-release", "sm90") if side is Side.DEVICE else ("ubuntu-24.04",)
    job = Job(name="sm90" if side is Side.DEVICE else "hosted", side=side, runs_on=runs_on, **came.pop("job", {}))
    one = Came(job=job, planned=len(rows), **{"arrived": len(rows), "attempt": 1, **came})
    return Gathered(came=(one,), rows={side: rows})


def leave(merged: Path, found: Gathered) -> Path:
    """As `runner ci gather` does it, without what is not read here."""
    merged.mkdir(parents=True, exist_ok=True)
    kept = gather._Kept(came=found.came, strays=found.strays, required=found.required, nothing=found.nothing)
    (merged / "jobs.json").write_bytes(gather._KEPT.dump_json(kept))
    for side, rows in found.rows.items():
        (merged / side.value).mkdir(exist_ok=True)
        (merged / side.value / "results.json").write_text(results.to_json(list(rows)))
    return merged


class World:
    """GitHub's lists, and what it was asked to do."""

    def __init__(self) -> None:
        self.lists: dict[str, Any] = {
            "/repos/a/b/pulls": [pull()],
            "/repos/a/b/issues/7/comments": [],
            "/repos/a/b/pulls/7": {"state": "open", "head": {"sha": HEAD}},
        }
        self.asked: list[str] = []
        self.done: list[tuple[str, str]] = []

    def get(self, path: str, _: str | None) -> tuple[int, Any]:
        self.asked.append(path)
        found = self.lists.get(path.partition("?")[0])
        return (404, {}) if found is None else (200, found)

    def post(self, path: str, authorization: str | None, given: Any) -> tuple[int, Any]:
        assert authorization == "Bearer t"
        assert len(given.get("body", "")) <= MOST
        self.done.append((path.removeprefix("/repos/a/b/"), given.get("body", "")))
        return 201, {}


def pull(number: int = 7, sha: str = HEAD, repository: str | None = "stranger/b") -> dict[str, Any]:
    return {"number": number, "head": {"sha": sha, "repo": repository and {"full_name": repository}}}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    made = World()
    monkeypatch.chdir(tmp_path)
    for name in ("PULL", "SHA", "RESULT", "GITHUB_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_REPOSITORY", "a/b")
    monkeypatch.setenv("GITHUB_TOKEN", "t")
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
    with answering(made.get, made.post) as address:
        monkeypatch.setenv("GITHUB_API_URL", address)
        yield made


def ended(**others: Any) -> None:
    """The event, of a fork unless it says something else: its list of pull requests is empty then."""
    of_fork = {"full_name": "stranger/b", "owner": {"login": "stranger"}}
    run = {
        "id": 12, "run_attempt": 1, "name": "matrix-pr", "event": "pull_request", "status": "completed",
        "conclusion": "success", "path": ".github/workflows/matrix-pr.yml", "head_sha": HEAD, "head_branch": "a/&b=c",
        "head_repository": of_fork, "pull_requests": [],
    }  # fmt: skip
    Path("event.json").write_text(json.dumps({"action": "completed", "workflow_run": {**run, **others}}))


def of_us(**others: Any) -> None:
    """The event of a night that is red."""
    ours = {"full_name": "a/b", "owner": {"login": "a"}}
    night = {"event": "schedule", "path": ".github/workflows/matrix-nightly.yml@main", "head_branch": "main"}
    ended(**{"head_repository": ours, "conclusion": "failure", **night, **others})


def test_it_is_written_once_and_then_kept_up_to_date(world: World, capsys) -> None:
    ended()
    leave(Path("merged"), gathered(cell(State.PASS)))
    assert main(["ci", "tell"]) == 0
    (where, text), head = world.done[0], "**`matrix-pr` is green**"
    assert where == "issues/7/comments"
    link = "[the run](https://github.com/a/b/actions/runs/12)"
    assert text.startswith(f"{MARK}\n{head} for `{HEAD}`: {link}.\n")
    assert "**exit 0: everything as expected**" in text
    assert world.asked[0].startswith("/repos/a/b/pulls?state=open&head=stranger:a%2F%26b%3Dc&per_page=")

    world.lists["/repos/a/b/issues/7/comments"] = [
        {"id": 1, "user": {"login": "stranger"}, "body": text},
        {"id": 2, "user": BOT, "body": "Started for it."},
        {"id": 3, "user": BOT, "body": "<!-- attnmatrix: how matrix-gpu ended -->"},
        {"id": 4, "user": BOT, "body": f"> {MARK}"},
        {"id": 5, "user": BOT, "body": text.replace("\n", "\r\n")},
        {"id": 6, "user": BOT, "body": text},
        {"id": 7, "user": None, "body": None},
    ]
    ended(conclusion="failure", run_attempt=2)
    assert main(["ci", "tell"]) == 0
    (where, text) = world.done[1]
    assert where == "issues/comments/5", "the first that we wrote and that begins so"
    assert text.startswith(f"{MARK}\n**`matrix-pr` is red** for `{HEAD}`: {link}, attempt 2.\n")


@pytest.mark.parametrize(
    ("event", "pulls", "words"),
    [
        ({"path": ".github/workflows/evil.yml"}, [pull()], "is no run of matrix-pr.yml"),
        ({"event": "merge_group"}, [pull()], "is no run of matrix-pr.yml for a pull request"),
        ({"head_repository": None}, [pull()], "the repository or the branch of the pull request is gone"),
        ({"head_branch": None}, [pull()], "is gone"),
        ({}, [], "is not the newest commit of an open pull request"),
        ({}, [pull(sha=OTHER)], "is not the newest commit"),
        ({}, [pull(repository="other/b")], "is not the newest commit"),
        ({}, [pull(repository=None)], "is not the newest commit"),
        ({}, [pull(), pull(8)], "is of several pull requests"),
    ],
)
def test_of_no_pull_request_as_it_is_now_nothing_is_told(world: World, capsys, event, pulls, words: str) -> None:
    ended(**event)
    leave(Path("merged"), gathered(cell(State.PASS)))
    world.lists["/repos/a/b/pulls"] = pulls
    assert main(["ci", "tell"]) == 0
    assert words in capsys.readouterr().out
    assert world.done == []


@pytest.mark.parametrize("event", ["", "[]", "{}", '{"workflow_run": {"id": 1}}', '{"comment": {}}'])
def test_another_event_is_refused(world: World, capsys, event: str) -> None:
    Path("event.json").write_text(event)
    for command in ("tell", "again"):
        assert main(["ci", command]) == 2
        assert "no event workflow_run" in capsys.readouterr().err


def test_a_run_on_machines_with_gpus_has_a_comment_of_its_own(world: World, monkeypatch, capsys) -> None:
    for name, value in {"PULL": "7", "SHA": HEAD, "RESULT": "failure", "GITHUB_RUN_ID": "9",
                        "GITHUB_RUN_ATTEMPT": "1", "GITHUB_SERVER_URL": "https://ghe.example"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    leave(Path("merged"), gathered(cell(State.PASS)))
    assert main(["ci", "tell"]) == 0
    (where, text) = world.done[0]
    assert where == "issues/7/comments"
    assert text.startswith("<!-- attnmatrix: how matrix-gpu ended -->\n**`matrix-gpu` is red**")
    assert "(https://ghe.example/a/b/actions/runs/9)" in text
    monkeypatch.setenv("SHA", OTHER)
    assert main(["ci", "tell"]) == 0
    assert f"nothing is told: {OTHER} is not the newest commit" in capsys.readouterr().out
    assert len(world.done) == 1


def damaged(merged: Path, how: str) -> None:
    leave(merged, gathered(cell(State.PASS)))
    jobs, rows = merged / "jobs.json", merged / "hosted" / "results.json"
    match how:
        case "nothing":
            jobs.unlink()
            rows.unlink()
        case "no jobs":
            jobs.unlink()
        case "other jobs":
            jobs.write_text('{"came": "@all"}')
        case "deep":
            rows.write_text("[" * 100_000)
        case "link":
            rows.unlink()
            rows.symlink_to("/etc/hostname")
        case "twice":
            rows.write_text(results.to_json([cell(State.PASS)] * 2))
        case "other axes":
            rows.write_text(results.to_json([cell(State.PASS), replace(cell(State.PASS), id="x", axes={"@all": 1})]))
        case "huge numbers":
            jobs.write_text(jobs.read_text().replace('"planned":1', f'"planned":{10**400}'))


@pytest.mark.parametrize(
    "how", ["nothing", "no jobs", "other jobs", "deep", "link", "twice", "other axes", "huge numbers"]
)
def test_what_cannot_be_read_is_told_and_no_older_word_stays(world: World, how: str) -> None:
    ended(conclusion="cancelled")
    damaged(Path("merged"), how)
    assert main(["ci", "tell"]) == 0
    ((_, text),) = world.done
    assert "**`matrix-pr` was cancelled**" in text
    assert "What it left cannot be shown: `" in text


def test_more_than_can_be_read_is_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "MOST_BYTES", 10)
    with pytest.raises(UsageError, match="more than 10 are not read"):
        telling.read(leave(Path("merged"), gathered(cell(State.PASS))))


def prose(text: str) -> str:
    """What is not code of a page: what GitHub would take for a mention, a reference or a link."""
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    return re.sub(r"<code.*?</code>", "", html, flags=re.DOTALL)


TOLD = telling.Told(workflow="matrix-pr", pull=7, sha=HEAD, conclusion="failure", url="https://ours/1", attempt=1)
NASTY = {**{name: TEXTS[name] for name in ("html", "markdown", "bidi")}, "link": "https://evil.example/x"}


@pytest.mark.parametrize("kind", NASTY)
def test_no_text_of_a_result_mentions_or_leads_anywhere(tmp_path: Path, kind: str) -> None:
    by_state = {row.state: row for row in known(all_results())}
    bad = replace(by_state[State.OVERFLOW], verdict=Verdict.XFAIL, known="https://evil.example/y")
    rows = [*by_state.values(), replace(bad, id="known")]
    assert len(rows) > 3
    text, seen = NASTY[kind], 0
    for place in places():
        nasty = [replace(put(row, place, text), id=f"{row.id} {text}") for row in rows]
        found = replace(gathered(*nasty), strays=(text,), nothing=text)
        page = telling.page.render(found, {}, title="x", links=False)
        seen += page.count("evil")
        left = prose(page)
        for word in ("evil", "@all", "#1", "<a ", "<img", "<script", "http"):
            assert word not in left, (place, left[max(0, left.index(word) - 200) : left.index(word) + 200])
    assert seen > 60, "it is there"
    assert 'href="https://evil.example/y"' in prose(telling.page.render(found, {}, title="x")), "with links it is one"


def test_the_conclusion_is_githubs_and_no_markup(tmp_path: Path) -> None:
    text = telling.body(replace(TOLD, conclusion="`@all`"), leave(tmp_path, gathered(cell(State.PASS))))
    assert "@all" not in prose(text)
    assert 'href="https://ours/1"' in prose(text)


def test_whatever_was_left_it_is_short_enough(tmp_path: Path) -> None:
    """Every text of every result at its longest, many jobs, and more candidates than fit."""
    long = "x@y" * 2_000
    rows = [
        replace(
            row, reason=f"{long} {n}", expected=long, known=f"https://e/{n}", environment={"candidate": f"{long}{n}"}
        )
        for n, row in enumerate(all_results())
        if n < 700
    ]
    found = gathered(*rows)
    found = replace(found, came=found.came * 5_000, strays=(long,) * 500)
    text = telling.body(TOLD, leave(tmp_path, found))
    assert len(text) <= MOST
    assert len(text.encode()) <= telling.LIMIT
    assert "… and 4,968 more jobs." in text
    assert text.startswith(MARK)


def on_device(state: State, reason: str = "") -> CellResult:
    row = cell(state, axes={"arch": "sm90"}, cases=(), reason=reason)
    return replace(row, evidence=Evidence.DEVICE)


LOST = gathered(on_device(State.INFRA, "GPU-1: it fell off the bus"), side=Side.DEVICE)
DIED = gathered(on_device(State.NOT_RUN), side=Side.DEVICE, arrived=0, troubles=("left no results",))
GONE = gathered(
    on_device(State.SKIPPED), side=Side.DEVICE, skipped=1, because="there is no sm90 device here: no driver"
)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (LOST, "sm90: 1 cell infra: GPU-1: it fell off the bus"),
        (DIED, "sm90: left no results"),
        (GONE, "sm90: 1 cell without evidence: there is no sm90 device here: no driver"),
    ],
)
def test_a_machine_that_was_the_trouble_is_tried_again(world: World, capsys, found: Gathered, why: str) -> None:
    of_us()
    leave(Path("merged"), found)
    assert main(["ci", "again"]) == 0
    assert world.done == [("actions/runs/12/rerun-failed-jobs", "")]
    assert capsys.readouterr().out.splitlines() == [why, "what failed of the run 12 runs again"]


@pytest.mark.parametrize(
    "found",
    [
        gathered(on_device(State.PASS), side=Side.DEVICE),
        gathered(on_device(State.FAIL, "no"), side=Side.DEVICE),  # the product
        gathered(on_device(State.NOT_RUN), side=Side.DEVICE),  # it had no time for that one
        gathered(on_device(State.SKIPPED), side=Side.DEVICE, skipped=1, job={"offline": "no machine took the job"}),
        gathered(cell(State.INFRA, cases=(), reason="no index")),  # a hosted job
        Gathered(came=()),
    ],
)
def test_other_trouble_is_for_people(world: World, capsys, found: Gathered) -> None:
    of_us()
    leave(Path("merged"), found)
    assert main(["ci", "again"]) == 0
    assert world.done == []
    assert "the run 12 is not run again: no machine was the trouble" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"path": ".github/workflows/matrix-gpu.yml"}, "only matrix-nightly.yml and release-signoff.yml are run again"),
        ({"path": ".github/workflows/x/matrix-nightly.yml"}, "it is of 'x/matrix-nightly.yml'"),
        ({"head_repository": {"full_name": "evil/b", "owner": {"login": "evil"}}}, "its commit is of 'evil/b'"),
        ({"head_repository": None}, "its commit is of 'nobody'"),
        ({"event": "pull_request"}, "the event 'pull_request' started it"),
        ({"conclusion": "cancelled"}, "it ended as 'cancelled'"),
        ({"conclusion": None}, "it ended as 'nothing'"),
        ({"run_attempt": 2}, "it was run again already: this was attempt 2"),
    ],
)
def test_only_the_first_attempt_at_our_own_runs_is_run_again(world: World, capsys, others, words: str) -> None:
    of_us(**others)
    leave(Path("merged"), LOST)
    assert main(["ci", "again"]) == 0
    assert world.done == []
    assert words in capsys.readouterr().out


def test_of_a_device_job_in_parts_each_is_told() -> None:
    assert machine_troubles(LOST) == ["sm90: 1 cell infra: GPU-1: it fell off the bus"]
    other = replace(LOST.came[0], job=replace(LOST.came[0].job, runs_on=("self-hosted", "gpu-release", "sm100")))
    assert machine_troubles(replace(LOST, came=(other,))) == [], "of another arch"


def test_pages_are_asked_for_after_what_is_asked(world: World) -> None:
    Api.here("GITHUB_TOKEN").rows("pulls?state=open")
    assert world.asked == ["/repos/a/b/pulls?state=open&per_page=100&page=1"]
