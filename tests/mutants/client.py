"""The parent's end of the driver: mutants in, what became of the cases out."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.mutants.mutants import CORRECTIONS, Edit, Mutant, body

PROJECT = Path(__file__).parents[2]
Verdicts = dict[str, dict[str, dict[str, Any]]]


def python() -> Path:
    """The Python of the environment of 0.32.0; built if it is not there yet."""
    command = [sys.executable, "-m", "runner", "env", "build", "--engine", "local", "0.32.0"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True, cwd=PROJECT).stdout.strip())


class Cases:
    """Judges cells with and without edits, through a driver for each kind of case and evidence."""

    def __init__(self, drivers: ExitStack) -> None:
        self._stack = drivers
        self._drivers: dict[tuple[str, str], subprocess.Popen[str]] = {}
        self._baselines: dict[tuple[str, str], Verdicts] = {}

    def judge(self, edits: Sequence[Edit], cells: Sequence[str]) -> Verdicts:
        bodies = [body(cell) for cell in cells]
        (of,) = {(b["axes"].get("case", "metadata"), b["evidence"].replace("cpu", "emulated")) for b in bodies}
        if of not in self._drivers:
            self._drivers[of] = self._stack.enter_context(_driver(*of))
        process = self._drivers[of]
        assert process.stdin is not None
        assert process.stdout is not None
        request = {"edits": [(e.where, e.old, e.new) for e in edits], "cells": bodies}
        print(json.dumps(request), file=process.stdin, flush=True)
        line = process.stdout.readline()
        assert line, "the driver has died; its standard error says why"
        answer = json.loads(line)
        assert "error" not in answer, f"a mutant that does not apply proves nothing: {answer['error']}"
        verdicts: Verdicts = answer["verdicts"]
        return verdicts

    def baseline(self, cells: Sequence[str], correction: str) -> Verdicts:
        """The verdicts without the mutant, but with what it is a mutant of."""
        for cell in cells:
            if (cell, correction) not in self._baselines:
                self._baselines[cell, correction] = self.judge(CORRECTIONS[correction], [cell])
        return {cell: self._baselines[cell, correction][cell] for cell in cells}

    def caught(self, mutant: Mutant) -> dict[str, str]:
        """The cases that the mutant turns red, red in another way, or green, each with the words of the first change.

        A refusal is neither: nobody would look at it.
        """
        before = self.baseline(mutant.cells, mutant.correction)
        after = self.judge([*CORRECTIONS[mutant.correction], mutant.edit], mutant.cells)
        found: dict[str, str] = {}
        for cell in mutant.cells:
            for case, verdict in after[cell].items():
                old = before[cell].get(case, {"state": "not run", "how": []})
                changed = (verdict["state"], verdict["how"]) != (old["state"], old["how"])
                if changed and verdict["state"] not in ("refused", "skipped"):
                    found.setdefault(case, f"{old['state']} to {verdict['state']}: {verdict['message']}")
        return found


@contextmanager
def running() -> Iterator[Cases]:
    """Drivers, each with vLLM imported when it is first needed, until the block ends."""
    with ExitStack() as drivers:
        yield Cases(drivers)


@contextmanager
def _driver(case: str, evidence: str) -> Iterator["subprocess.Popen[str]"]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    environment |= {"ATTNMATRIX_CASE": case, "ATTNMATRIX_EVIDENCE": evidence}
    environment.pop("PYTEST_ADDOPTS", None)
    with subprocess.Popen(
        [str(python()), str(PROJECT / "tests" / "mutants" / "driver.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT, env=environment,
    ) as process:  # fmt: skip
        yield process
        assert process.stdin is not None
        process.stdin.close()  # ends the driver
