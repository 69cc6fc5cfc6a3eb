"""What dispatch costs: a cell that does nothing, on each engine that is here, and what others take to isolate as much.

    python benchmarks/dispatch.py [--cells 200] [--rounds 3]          the table
    python benchmarks/dispatch.py --scale 100000 [--nodes 8]          memory and rate of a long run over a Ray cluster

The table gives milliseconds for each further cell, one worker: the time of cells + 1 less that of one, so imports,
images and starts are not in it. In each round the ways take turns; medians over the rounds. All but xdist give each
cell a process of its own. Ray and Docker are left out, with a word, where they are not here. Needs the extras dev and
ray.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT))  # the tests' cells that do as told; what follows is found there (E402)

from runner import dispatch  # noqa: E402
from runner.engines.base import Engine  # noqa: E402
from runner.engines.local import LocalEngine  # noqa: E402
from runner.journal import Journal  # noqa: E402
from runner.logs import LogStore  # noqa: E402
from runner.model import CellFinished, Event, Order  # noqa: E402
from runner.stop import StopSignal  # noqa: E402
from tests.contract.bench import CASES, WORKER, cell, order  # noqa: E402

DOCKER = shutil.which("docker") or "/usr/bin/docker"
FEW = 8
"""Cells of the ways that take a second for each."""
NOOP = "import pytest\n\n@pytest.mark.parametrize('n', range({count}))\ndef test_nothing(n):\n    pass\n"
NOXFILE = (
    "import nox\n\n@nox.session(venv_backend='none')\n@nox.parametrize('n', range({count}))\ndef cell(session, n):\n"
)
NOXFILE += "    session.run({python!r}, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', 'test_one.py', external=True)\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=int, default=0, metavar="CELLS")
    parser.add_argument("--nodes", type=int, default=8)
    asked = parser.parse_args()
    if asked.scale:
        scale(asked.scale, asked.nodes)
    else:
        table(asked.cells, asked.rounds)


def table(cells: int, rounds: int) -> None:
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        ways = dict(available(stack, Path(folder), cells))
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
            for name, (count, run) in ways.items():
                one, all_ = timed(lambda run=run: run(1)), timed(lambda run=run, count=count: run(count + 1))
                times[name].append((all_ - one) / count * 1000)
    print(f"{os.cpu_count()} cores; milliseconds for each further cell, one worker, medians of {rounds} rounds")
    for name, each in times.items():
        print(f"  {name:36}{statistics.median(each):9.1f}   ({', '.join(f'{value:.1f}' for value in sorted(each))})")


Way = tuple[int, Callable[[int], None]]
"""How many further cells make a time that can be measured, and what runs so many."""


def available(stack: ExitStack, folder: Path, cells: int) -> Iterator[tuple[str, Way]]:
    """Every way that there is on this machine, ready."""
    folder.chmod(0o755)  # for the user of a container
    (folder / "test_one.py").write_text(NOOP.format(count=1))
    local = LocalEngine(python_for=lambda _: Path(sys.executable), worker=WORKER, cases=CASES)
    stack.callback(local.close)
    yield "runner, local", (cells, lambda count: noops(local, folder, count))
    if found := over_ray(stack, folder, 1):
        yield "runner, Ray", (cells, lambda count: noops(found, folder, count))
    if image := test_image():
        docker = in_docker(stack, image)
        yield "runner, warm container", (cells, lambda count: noops(docker, folder, count))
        yield "docker run per cell", (FEW, lambda count: docker_run(image, count, "-c", "pass"))
        inside = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "/cases/test_one.py")
        yield (
            "docker run per cell, pytest in it",
            (
                FEW,
                lambda count: docker_run(image, count, *inside, mount=f"{folder}:/cases:ro"),
            ),
        )
    yield "pytest-xdist -n 1, no isolation", (20 * cells, lambda count: xdist(folder, count))
    yield "nox, a session per cell", (FEW, lambda count: nox(folder, count))


def noops(
    engine: Engine, folder: Path, count: int, jobs: int = 1, see: Callable[[Event], None] = lambda _: None
) -> None:
    """Cells that do nothing through the dispatcher, the journal and the log, as in a run."""
    failed = []
    first = cell("nothing")
    cells = tuple(replace(first, id=f"nothing-{n}") for n in range(count))
    one: Order = replace(order(), cells=cells)
    with Journal(Path(tempfile.mkdtemp(dir=folder)) / "events.jsonl") as journal:

        def on_event(event: Event) -> None:
            journal.append(event)
            if isinstance(event, CellFinished) and [case.state.value for case in event.outcome.cases] != ["pass"]:
                failed.append(event.outcome.cell.id)
            see(event)

        logs, stop = LogStore(folder), StopSignal()
        dispatch.run([one], engine=engine, jobs=jobs, timeout_s=60, on_event=on_event, stop=stop, logs=logs, keep=False)
    assert not failed, f"{len(failed)} cells that do nothing did not pass, the first is {failed[0]}"


def over_ray(stack: ExitStack, folder: Path, nodes: int) -> Engine | None:
    """The engine on a cluster of so many nodes of this machine, one worker each."""
    try:
        import ray  # noqa: F401 - whether it is there
    except ImportError:
        print("no Ray is installed: left out", file=sys.stderr)
        return None
    from runner.engines import ray_cluster
    from tests.ray import cluster

    started = stack.enter_context(cluster.started(folder / "home", *({} for _ in range(nodes))))
    ray_cluster.connect(started.address)
    stack.callback(ray_cluster.disconnect)
    engine: Engine = cluster.engine()
    stack.callback(engine.close)
    return engine


def test_image() -> str:
    """The image of the contract tests, where a daemon has it."""
    found = subprocess.run(
        [DOCKER, "images", "-q", "attnmatrix-test:latest"], check=False, capture_output=True, text=True
    )
    if found.returncode or not found.stdout.strip():
        print("no Docker daemon answers, or it has no attnmatrix-test:latest (the contract tests make it): left out")
        return ""
    return "attnmatrix-test:latest"


def in_docker(stack: ExitStack, image: str) -> Engine:
    import docker

    from runner.engines.docker import DockerEngine

    engine = DockerEngine(
        docker.from_env(), image_for=lambda _: image, run_id=f"bench-{os.getpid()}", worker=WORKER, cases=CASES
    )
    stack.callback(engine.close)
    return engine


def docker_run(image: str, count: int, *python: str, mount: str = "") -> None:
    command = [DOCKER, "run", "--rm", "--network=none", *([f"--volume={mount}"] if mount else []), image, "python3"]
    for _ in range(count):
        subprocess.run([*command, *python], check=True, stdout=subprocess.DEVNULL)


def xdist(folder: Path, count: int) -> None:
    (folder / "test_many.py").write_text(NOOP.format(count=count))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1", "test_many.py"]
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)


def nox(folder: Path, count: int) -> None:
    (folder / "noxfile.py").write_text(NOXFILE.format(count=count, python=sys.executable))
    command = [sys.executable, "-m", "nox", "--no-error-on-missing-interpreters"]
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def timed(do: Callable[[], None]) -> float:
    started = time.monotonic()
    do()
    return time.monotonic() - started


def scale(cells: int, nodes: int) -> None:
    """Many cells over many nodes: the rate, and this process's memory and CPU time per cell at each tenth."""
    tenths = iter(range(1, 11))
    due, finished, started, spent = next(tenths), 0, time.monotonic(), time.process_time()
    print(f"{cells:,} cells, {nodes} nodes on {os.cpu_count()} cores")
    print("   done   cells/s   RSS MB  CPU ms   load")

    def see(event: Event) -> None:
        nonlocal due, finished
        finished += isinstance(event, CellFinished)
        if finished >= due * cells / 10:
            rate, load = finished / (time.monotonic() - started), os.getloadavg()[0]
            cpu = (time.process_time() - spent) / finished * 1e3
            print(f"  {due * 10:4} %{rate:10.1f}{resident():9.1f}{cpu:9.2f}{load:6.1f}", flush=True)
            due = next(tenths, 11)

    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        engine = over_ray(stack, Path(folder), nodes)
        assert engine, "this needs Ray"
        print(f"  start{'':10}{resident():9.1f}", flush=True)
        started, spent = time.monotonic(), time.process_time()
        noops(engine, Path(folder), cells, jobs=nodes, see=see)


def resident() -> float:
    """MB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
