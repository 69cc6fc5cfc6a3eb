"""What runs do for the history: they add themselves, and one that was killed is found."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner import cli, session
from runner.engines.fake import FakeEngine, Step
from runner.history import store
from runner.messages import Case, Done
from runner.model import State
from runner.options import EngineName, Machine


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, in_small) -> FakeEngine:
    def passing(cell: str, _timeout_s: float) -> Iterable[Step]:
        case = Case(cell=cell, name="test_x", state=State.PASS, message="", duration_s=0.0)
        return [case, Done(cell=cell, duration_s=0.0, death=None)]

    fake = FakeEngine(passing)

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[FakeEngine]:
        yield fake
        fake.close()

    monkeypatch.setattr(session, "open_engine", opened)
    monkeypatch.setattr(session, "choose", lambda *_: Machine(engine=EngineName.LOCAL, why="as asked"))
    monkeypatch.setattr(session, "facts_of", lambda *_: lambda order: {"cases_digest": "cccc"})
    monkeypatch.delenv("ATTNMATRIX_HISTORY", raising=False)
    in_small()
    return fake


def counts() -> list[tuple[str, int]]:
    """Verdicts of all runs in the history, as it is."""
    with store.opened(Path("runs/history.sqlite")) as history:
        return [(one.verdict.value, one.cells) for one in history.totals()]


def test_a_run_adds_itself_at_its_end(engine: FakeEngine) -> None:
    assert cli.main(["--filter", "k0,sm90", "--no-known", "-q"]) == 0
    assert counts() == [("pass", 8)]
    assert cli.main(["--filter", "k0,cpu", "--no-known", "-q"]) == 0
    assert sorted(counts()) == [("pass", 4), ("pass", 8), ("unsupported", 4)]


def test_a_run_that_is_gone_on_with_is_one_run(engine: FakeEngine) -> None:
    assert cli.main(["--filter", "k0,sm90", "--no-known", "-q"]) == 0
    (run,) = (path for path in Path("runs").iterdir() if path.is_dir() and not path.is_symlink())
    journal = run / "events.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) // 2]))
    (run / "results.json").unlink()  # as kill -9 leaves it
    Path("runs/history.sqlite").unlink()
    assert cli.main(["history"]) == 0
    found = dict(counts())
    assert set(found) == {"pass", "not_run"}
    assert sum(found.values()) == 8
    assert cli.main(["resume", str(run), "-q"]) == 0
    assert counts() == [("pass", 8)]


def test_a_history_that_cannot_be_written_is_told_at_the_end(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("runs/history.sqlite").mkdir(parents=True)
    assert cli.main(["--filter", "k0,sm90", "--no-known"]) == 0
    assert "the history was not updated: runs/history.sqlite" in capsys.readouterr().err
